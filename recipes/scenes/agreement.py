"""Prompt agreement: which named shapes, colours and relations a detector finds in a picture."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from geosprint.models import ASSETS
from geosprint.models.networks import CONFIG, DETECTOR, STATISTICS, WEIGHTS, SceneDetector, load_detector
from recipes.scenes.checkpoints import load_checkpoint, save_checkpoint
from recipes.scenes.drawing import BACKGROUNDS, COLOURS, SHAPES, SIDE, Scene, draw, draw_up_scenes

_COLOUR_NAMES = tuple(COLOURS)
_BACKGROUND_NAMES = tuple(BACKGROUNDS)
_CELL = 4
_CELLS = SIDE // _CELL
_DIRECTIONS = {"left of": (-1, 0), "right of": (1, 0), "above": (0, -1), "below": (0, 1)}
_LEAST_DISTANCE = 6.0
# A cell this near to a centre, or this likely to be, is the thing's.
_SURE = 0.4
# Seeds of the detector's batches, past those of all other training pictures.
_FIRST_SEED = 2 * 10**6
_STATISTICS_SEED = 3 * 10**6


@dataclass(frozen=True)
class Item:
    """A shape of a colour; in a picture it also has a place."""

    shape: str
    colour: str
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class Content:
    """What a caption names or what a picture shows; only captions have relations, each between neighbours."""

    items: tuple[Item, ...]
    background: str | None
    relations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Agreement:
    """Facts of captions that hold and all of them, by kind; a caption holds if all of its facts do."""

    shapes: int = 0
    all_shapes: int = 0
    colours: int = 0
    all_colours: int = 0
    relations: int = 0
    all_relations: int = 0
    captions: int = 0
    all_captions: int = 0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def held(self) -> int:
        return self.shapes + self.colours + self.relations

    @property
    def named(self) -> int:
        return self.all_shapes + self.all_colours + self.all_relations

    @property
    def share(self) -> float:
        return self.held / self.named

    def __str__(self) -> str:
        return (
            f"agreement {self.share:.1%} of {self.named} facts: shapes {self.shapes}/{self.all_shapes}, "
            f"colours {self.colours}/{self.all_colours}, relations {self.relations}/{self.all_relations}, "
            f"whole captions {self.captions}/{self.all_captions}"
        )


@dataclass(frozen=True)
class DetectorPlan:
    """How the detector is trained."""

    batch: int = 32
    steps: int = 2000
    learning_rate: float = 2e-3
    save_every: int = 250


def ready_detector(folder: Path) -> SceneDetector:
    """The committed detector, or else one that is trained in the folder."""
    return load_detector() if (ASSETS / DETECTOR).exists() else train_detector(DetectorPlan(), folder)


def save_detector(detector: SceneDetector, folder: Path) -> None:
    """Save the weights in half precision, the only form that is committed, and the statistics of drawings."""
    folder.mkdir(parents=True, exist_ok=True)
    halves = {
        name: value.half() if value.is_floating_point() else value for name, value in detector.state_dict().items()
    }
    save_file(halves, folder / WEIGHTS)
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    (folder / CONFIG).write_text(json.dumps({"sha256": digest}) + "\n")
    with torch.no_grad():
        parts = [detector.features(draw(draw_up_scenes(100, seed=_STATISTICS_SEED + i))) for i in range(100)]
    features = torch.cat(parts).double().numpy()
    found = {"mean": features.mean(axis=0), "covariance": np.cov(features, rowvar=False), "count": len(features)}
    np.savez_compressed(folder / STATISTICS, **found)


def train_detector(plan: DetectorPlan, folder: Path) -> SceneDetector:
    """Train on true drawings, or go on from the last checkpoint."""
    torch.manual_seed(0)
    detector = SceneDetector(len(SHAPES), len(COLOURS), len(BACKGROUNDS))
    optimizer = torch.optim.AdamW(detector.parameters(), lr=plan.learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, plan.steps)
    parts = {"detector": detector, "optimizer": optimizer, "schedule": schedule}
    path = folder / "detector.pt"
    started = time.monotonic()
    for step in range(load_checkpoint(path, parts), plan.steps):
        scenes = draw_up_scenes(plan.batch, seed=_FIRST_SEED + step)
        torch.manual_seed(step)
        loss = _detector_loss(detector(_roughened(draw(scenes))), scenes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % plan.save_every == 0:
            save_checkpoint(path, step + 1, parts)
            print(
                f"detector step={step + 1} loss={loss.item():.4f} seconds={time.monotonic() - started:.0f}", flush=True
            )
    return detector.eval()


def _roughened(pictures: Tensor) -> Tensor:
    # Pictures to judge are a bit blurred and noisy, as decoded latents are.
    for _ in range(2):
        blurred = functional.avg_pool2d(functional.pad(pictures, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
        pictures = pictures.lerp(blurred, torch.rand(len(pictures), 1, 1, 1))
    return pictures + 0.04 * torch.randn_like(pictures)


def _detector_loss(outputs: tuple[Tensor, Tensor, Tensor, Tensor], scenes: list[Scene]) -> Tensor:
    centre, shape, colour, background = outputs
    nearness = _nearness(scenes)
    # A centre near a corner belongs to four cells: a soft target does not make them quarrel.
    near, nearest = nearness.max(dim=1)
    rows, ys, xs = (near > _SURE).nonzero(as_tuple=True)
    which = nearest[rows, ys, xs].tolist()
    things = [scenes[row].things[index] for row, index in zip(rows.tolist(), which, strict=True)]
    backgrounds = torch.tensor([_BACKGROUND_NAMES.index(scene.background) for scene in scenes])
    shapes = torch.tensor([SHAPES.index(thing.shape) for thing in things])
    colours = torch.tensor([_COLOUR_NAMES.index(thing.colour) for thing in things])
    return (
        10 * functional.binary_cross_entropy_with_logits(centre, near)
        + functional.cross_entropy(shape[rows, :, ys, xs], shapes)
        + functional.cross_entropy(colour[rows, :, ys, xs], colours)
        + functional.cross_entropy(background, backgrounds)
    )


def _nearness(scenes: list[Scene]) -> Tensor:
    """How near each cell is to the centre of each thing, from 0 to 1; rows of absent things are 0."""
    axis = torch.arange(_CELLS) + 0.5
    nearness = torch.zeros(len(scenes), max(len(scene.things) for scene in scenes), _CELLS, _CELLS)
    for row, scene in enumerate(scenes):
        for index, thing in enumerate(scene.things):
            squared = (axis - thing.x / _CELL) ** 2 + ((axis - thing.y / _CELL) ** 2)[:, None]
            nearness[row, index] = torch.exp(-squared / 1.3)
    return nearness


@torch.no_grad()
def see(detector: SceneDetector, pictures: Tensor) -> list[Content]:
    """What the detector finds in pictures with values from -1 to 1."""
    centre, shape, colour, background = detector(pictures)
    chance = centre.sigmoid()[:, None]
    peak = ((chance == functional.max_pool2d(chance, 5, stride=1, padding=2)) & (chance > _SURE))[:, 0]
    contents = []
    for row in range(len(pictures)):
        cells = peak[row].nonzero().tolist()
        items = tuple(
            Item(
                SHAPES[int(shape[row, :, y, x].argmax())],
                _COLOUR_NAMES[int(colour[row, :, y, x].argmax())],
                (x + 0.5) * _CELL,
                (y + 0.5) * _CELL,
            )
            for y, x in cells
        )
        contents.append(Content(items, _BACKGROUND_NAMES[int(background[row].argmax())]))
    return contents


def read_caption(caption: str) -> Content:
    """The items, relations and background that a caption names."""
    items, relations = [], []
    colour, background = "", None
    before, _, after = caption.lower().partition(" on a ")
    for word in before.split():
        if word in COLOURS:
            colour = word
        elif word in SHAPES:
            items.append(Item(word, colour))
        elif word in ("above", "below"):
            relations.append(word)
        elif word in ("left", "right"):
            relations.append(f"{word} of")
    for word in after.split():
        background = word if word in BACKGROUNDS else background
    return Content(tuple(items), background, tuple(relations))


def agreement_of(caption: str, seen: Content) -> Agreement:
    """The facts of one caption that hold in what was seen, for the best pairing of named with seen items."""
    named = read_caption(caption)
    absent = [Item("", "")] * len(named.items)
    pairings = permutations([*seen.items, *absent], len(named.items))
    return max((_agreement_of_pairing(named, paired, seen) for paired in pairings), key=lambda tally: tally.held)


def _agreement_of_pairing(named: Content, paired: Sequence[Item], seen: Content) -> Agreement:
    shapes = [item.shape == other.shape for item, other in zip(named.items, paired, strict=True)]
    colours = [item.colour == other.colour for item, other in zip(named.items, paired, strict=True)]
    # A relation between wrong things is no relation of the caption.
    right = list(map(all, zip(shapes, colours, strict=True)))
    relations = [
        right[index] and right[index + 1] and _relation_holds(relation, paired[index], paired[index + 1])
        for index, relation in enumerate(named.relations)
    ]
    if named.background is not None:
        colours.append(named.background == seen.background)
    whole = all(shapes + colours + relations)
    return Agreement(
        sum(shapes), len(shapes), sum(colours), len(colours), sum(relations), len(relations), int(whole), 1
    )


def _relation_holds(relation: str, first: Item, second: Item) -> bool:
    dx, dy = _DIRECTIONS[relation]
    along = dx * (first.x - second.x) + dy * (first.y - second.y)
    across = dy * (first.x - second.x) + dx * (first.y - second.y)
    return along >= _LEAST_DISTANCE and along >= abs(across)


def total_agreement(captions: list[str], pictures: Tensor, detector: SceneDetector) -> Agreement:
    """The facts of all captions, each looked for in its own picture."""
    contents = see(detector, pictures)
    return sum((agreement_of(*pair) for pair in zip(captions, contents, strict=True)), Agreement())
