"""Scenes of shapes on textured backgrounds, drawn from signed distances, and the captions that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SIDE = 64
SHAPES = ("circle", "square", "triangle", "star", "ring", "cross")
SIZES = ("small", "large")
TEXTURES = ("plain", "striped", "dotted", "checkered")
RELATIONS = ("left of", "right of", "above", "below")
COLOURS: dict[str, tuple[float, float, float]] = {
    "red": (0.86, 0.13, 0.14),
    "orange": (0.97, 0.55, 0.08),
    "yellow": (0.96, 0.88, 0.16),
    "green": (0.14, 0.62, 0.22),
    "blue": (0.13, 0.30, 0.85),
    "purple": (0.55, 0.18, 0.68),
    "white": (0.95, 0.95, 0.95),
    "black": (0.07, 0.07, 0.08),
}
BACKGROUNDS: dict[str, tuple[float, float, float]] = {
    "red": (0.70, 0.25, 0.25),
    "yellow": (0.88, 0.83, 0.42),
    "green": (0.36, 0.60, 0.38),
    "blue": (0.33, 0.47, 0.76),
    "purple": (0.50, 0.34, 0.60),
    "white": (0.88, 0.88, 0.87),
    "black": (0.16, 0.16, 0.17),
    "gray": (0.52, 0.52, 0.52),
}
_COLOUR_NAMES = tuple(COLOURS)
_BACKGROUND_NAMES = tuple(BACKGROUNDS)
# The step from the first thing to the second, in picture coordinates (y points down).
_STEPS = {"left of": (1, 0), "right of": (-1, 0), "above": (0, 1), "below": (0, -1)}
_OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
_COUNT_SHARES = (0.4, 0.4, 0.2)
_RADII = {"small": (7.6, 9.0), "large": (12.0, 14.5)}
# Three large things in a row must fit the picture.
_RADII_OF_THREE = {"small": (6.8, 7.8), "large": (9.6, 10.0)}


@dataclass(frozen=True)
class Thing:
    """One shape of a scene: what it is called, and where it is in pixels."""

    shape: str
    colour: str
    size: str
    x: float
    y: float
    radius: float
    angle: float


@dataclass(frozen=True)
class Scene:
    """One to three things, each related to the next, on a background."""

    things: tuple[Thing, ...]
    relations: tuple[str, ...]
    background: str
    texture: str
    texture_angle: float
    texture_period: float
    texture_phase: tuple[float, float]
    light_angle: float
    grain_seed: int
    sizes_are_named: bool

    @property
    def caption(self) -> str:
        words = [self._name(self.things[0])]
        for relation, thing in zip(self.relations, self.things[1:], strict=True):
            words += [relation, self._name(thing)]
        texture = "" if self.texture == "plain" else f"{self.texture} "
        return " ".join([*words, f"on a {texture}{self.background} background"])

    def _name(self, thing: Thing) -> str:
        words = [thing.size] if self.sizes_are_named else []
        words += [thing.colour, thing.shape]
        return " ".join(["an" if words[0][0] in "aeiou" else "a", *words])


def caption_words() -> tuple[str, ...]:
    """Every word that a caption can have, sorted."""
    relations = {word for relation in RELATIONS for word in relation.split()}
    names = {*SHAPES, *SIZES, *TEXTURES[1:], *COLOURS, *BACKGROUNDS}
    return tuple(sorted({"a", "an", "on", "background"} | relations | names))


def draw_up_scene(rng: np.random.Generator) -> Scene:
    """A random scene whose things neither overlap nor leave the picture."""
    count = 1 + int(rng.choice(3, p=_COUNT_SHARES))
    relations = _relations_that_never_turn_back(count - 1, rng)
    sizes = [str(rng.choice(SIZES)) for _ in range(count)]
    radii = [rng.uniform(*(_RADII_OF_THREE if count == 3 else _RADII)[size]) for size in sizes]
    places = _places_in_the_picture(radii, relations, rng)
    background = str(rng.choice(_BACKGROUND_NAMES))
    colours = [str(rng.choice([name for name in _COLOUR_NAMES if name != background])) for _ in range(count)]
    things = tuple(
        Thing(str(rng.choice(SHAPES)), colour, size, float(x), float(y), float(radius), float(rng.uniform(-0.2, 0.2)))
        for colour, size, radius, (x, y) in zip(colours, sizes, radii, places, strict=True)
    )
    return Scene(
        things=things,
        relations=relations,
        background=background,
        texture=str(rng.choice(TEXTURES)),
        texture_angle=float(rng.uniform(0, np.pi)),
        texture_period=float(rng.uniform(6.0, 11.0)),
        texture_phase=(float(rng.uniform(0, 2 * np.pi)), float(rng.uniform(0, 2 * np.pi))),
        light_angle=float(rng.uniform(0, 2 * np.pi)),
        grain_seed=int(rng.integers(2**31)),
        sizes_are_named=bool(rng.random() < 0.5),
    )


def draw_up_scenes(count: int, seed: int) -> list[Scene]:
    """The same scenes for the same seed."""
    rng = np.random.default_rng(seed)
    return [draw_up_scene(rng) for _ in range(count)]


def _relations_that_never_turn_back(count: int, rng: np.random.Generator) -> tuple[str, ...]:
    relations: list[str] = []
    for _ in range(count):
        # A step back would put the third thing onto the first.
        allowed = [name for name in RELATIONS if not relations or name != _OPPOSITE[relations[-1]]]
        relations.append(str(rng.choice(allowed)))
    return tuple(relations)


def _places_in_the_picture(radii: list[float], relations: tuple[str, ...], rng: np.random.Generator) -> np.ndarray:
    places = np.zeros((len(radii), 2))
    for index, relation in enumerate(relations):
        step = np.array(_STEPS[relation], dtype=float)
        aside = step[::-1] * rng.uniform(-4, 4)
        distance = radii[index] + radii[index + 1] + (1 if len(radii) == 3 else rng.uniform(1, 5))
        places[index + 1] = places[index] + step * distance + aside
    reach = np.array(radii)[:, None]
    low, high = (places - reach).min(axis=0), (places + reach).max(axis=0)
    slack = np.maximum(SIDE - 1 - (high - low), 0)
    # Things stay near the middle more often than not, as a photographer would have it.
    share = rng.uniform(0, 1, 2) * 0.7 + 0.15
    return places - low + 0.5 + slack * share


def draw(scenes: list[Scene]) -> Tensor:
    """The pictures of scenes, `(count, 3, 64, 64)` with values from -1 to 1."""
    axis = torch.arange(SIDE, dtype=torch.float32) + 0.5
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    picture = _draw_backgrounds(scenes, x, y)
    for index in range(max(len(scene.things) for scene in scenes)):
        rows = [row for row, scene in enumerate(scenes) if len(scene.things) > index]
        picture[rows] = _paint(
            picture[rows], [scenes[row].things[index] for row in rows], [scenes[row] for row in rows], x, y
        )
    return picture.clamp(0, 1) * 2 - 1


def _column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None, None]


def _draw_backgrounds(scenes: list[Scene], x: Tensor, y: Tensor) -> Tensor:
    colour = torch.tensor([BACKGROUNDS[scene.background] for scene in scenes])[:, :, None, None]
    angle = _column([scene.texture_angle for scene in scenes])
    rate = 2 * torch.pi / _column([scene.texture_period for scene in scenes])
    along = (x * angle.cos() + y * angle.sin()) * rate + _column([scene.texture_phase[0] for scene in scenes])
    across = (y * angle.cos() - x * angle.sin()) * rate + _column([scene.texture_phase[1] for scene in scenes])
    patterns = {
        "plain": torch.zeros_like(along),
        "striped": torch.tanh(2.5 * along.sin()),
        "dotted": torch.sigmoid(5 * (along.cos() + across.cos() - 0.9)) * 2 - 0.6,
        "checkered": torch.tanh(4 * (along / 2).sin() * (across / 2).sin()),
    }
    of_scene = torch.tensor([TEXTURES.index(scene.texture) for scene in scenes])
    pattern = torch.stack([patterns[name] for name in TEXTURES])[of_scene, torch.arange(len(scenes))]
    light = _column([scene.light_angle for scene in scenes])
    slope = ((x - SIDE / 2) * light.cos() + (y - SIDE / 2) * light.sin()) / SIDE
    brightness = 0.09 * pattern + 0.14 * slope + 0.03 * _grain(scenes)
    return colour + brightness[:, None]


def _grain(scenes: list[Scene]) -> Tensor:
    # Noise of three octaves: each picture's own, so it comes from the scene's seed.
    noise = torch.stack([_three_octaves(scene.grain_seed) for scene in scenes])
    coarse, middle, fine = noise[:, None, :64], noise[:, None, 64:320], noise[:, None, 320:]
    layers = [
        (coarse.reshape(-1, 1, 8, 8), 1.0),
        (middle.reshape(-1, 1, 16, 16), 0.8),
        (fine.reshape(-1, 1, 32, 32), 0.5),
    ]
    resized = [torch.nn.functional.interpolate(layer, size=SIDE, mode="bilinear") * scale for layer, scale in layers]
    return torch.stack(resized).sum(dim=0)[:, 0]


def _three_octaves(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(64 + 256 + 1024, dtype=np.float32))


def _paint(picture: Tensor, things: list[Thing], scenes: list[Scene], x: Tensor, y: Tensor) -> Tensor:
    angle = _column([thing.angle for thing in things])
    radius = _column([thing.radius for thing in things])
    dx, dy = x - _column([thing.x for thing in things]), y - _column([thing.y for thing in things])
    u, v = (dx * angle.cos() + dy * angle.sin()) / radius, (dy * angle.cos() - dx * angle.sin()) / radius
    distance = _distances(u, v, [thing.shape for thing in things]) * radius
    cover = torch.sigmoid(-distance * 3.0)[:, None]
    # A thin darker rim keeps things apart from backgrounds of a near colour.
    rim = torch.exp(-((distance + 0.6) ** 2))
    light = _column([scene.light_angle for scene in scenes])
    lit = u * light.cos() + v * light.sin()
    glint = torch.exp(-((u - 0.35 * light.cos()) ** 2 + (v - 0.35 * light.sin()) ** 2) * 9)
    colour = torch.tensor([COLOURS[thing.colour] for thing in things])[:, :, None, None]
    shaded = colour * (1 + 0.16 * lit - 0.25 * rim)[:, None] + 0.16 * glint[:, None]
    return picture * (1 - cover) + shaded * cover


def _distances(u: Tensor, v: Tensor, shapes: list[str]) -> Tensor:
    distance = torch.empty_like(u)
    for shape in set(shapes):
        rows = [row for row, name in enumerate(shapes) if name == shape]
        distance[rows] = _DISTANCE_OF[shape](u[rows], v[rows])
    return distance


def _circle(u: Tensor, v: Tensor) -> Tensor:
    return torch.hypot(u, v) - 0.95


def _ring(u: Tensor, v: Tensor) -> Tensor:
    return (torch.hypot(u, v) - 0.72).abs() - 0.24


def _square(u: Tensor, v: Tensor) -> Tensor:
    return torch.maximum(u.abs(), v.abs()) - 0.8


def _cross(u: Tensor, v: Tensor) -> Tensor:
    longer, shorter = torch.maximum(u.abs(), v.abs()), torch.minimum(u.abs(), v.abs())
    return torch.maximum(longer - 0.95, shorter - 0.29)


def _triangle(u: Tensor, v: Tensor) -> Tensor:
    # Three half-planes; the point is at the top.
    low = v + 0.15
    return torch.maximum(low - 0.85, 0.866 * u.abs() - 0.5 * low - 0.4)


def _star(u: Tensor, v: Tensor) -> Tensor:
    # Fold the plane into one tenth of a five-pointed star: there its edge is a straight line.
    turn = 2 * torch.pi / 5
    angle = torch.atan2(u, -v)
    folded = (torch.remainder(angle + turn / 2, turn) - turn / 2).abs()
    length = torch.hypot(u, v)
    px, py = length * folded.cos(), length * folded.sin()
    tip, dent = (1.05, 0.0), (0.46 * np.cos(np.pi / 5), 0.46 * np.sin(np.pi / 5))
    ex, ey = dent[0] - tip[0], dent[1] - tip[1]
    return ((px - tip[0]) * ey - (py - tip[1]) * ex) / float(np.hypot(ex, ey))


_DISTANCE_OF = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "ring": _ring,
    "cross": _cross,
}
