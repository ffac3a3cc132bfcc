"""Train a shipped network by name: read the data, follow the recipe, leave a run that can be exported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from geosprint.errors import ModelError
from geosprint.models import ASSETS
from geosprint.models.networks import CLASSIFIER, FashionClassifier, PatchedUNet, load_pretrained
from geosprint.models.unet import build_unet
from geosprint.paper.learning import TrainingPlan, draw_couplings, generator_of
from recipes.networks.classifier import CLASSIFIER_PLAN, CLASSIFIER_WIDTHS, classifier_loss
from recipes.networks.data import DATA_SETS, ImageSet
from recipes.networks.export import averaged_weights, export_classifier, export_network
from recipes.networks.loop import CHECKPOINT, TrainingRun, fit, made_directory, steps_done, steps_within
from recipes.networks.loss import Objective, denoising_loss
from recipes.networks.recipe import RECIPES, Recipe
from recipes.networks.reflow import Couplings, load_couplings, save_couplings

TRAINABLE = (*RECIPES, CLASSIFIER)
PAIRS = "pairs.safetensors"


def train(
    name: str,
    data: Path,
    runs: Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    minutes: float | None = None,
    checkpoint_seconds: float = 180.0,
) -> TrainingRun:
    """Train `name` on the files in `data`; the run lives in `runs`/`name` and goes on where it was killed."""
    check_budget(steps, minutes)
    pictures = training_set(name, data)
    directory = made_directory(Path(runs) / name)
    torch.manual_seed(seed)  # of the first weights; the loop itself derives its own numbers
    if name == CLASSIFIER:
        network: nn.Module = FashionClassifier(CLASSIFIER_WIDTHS)
        objective: Objective = classifier_loss
        examples: Sequence[Tensor] = (pictures.images, pictures.labels)
        plan = CLASSIFIER_PLAN
    else:
        recipe = RECIPES[name]
        network = first_network(recipe, Path(runs))
        objective, plan = denoising_loss(recipe), recipe.plan
        examples = examples_of(recipe, pictures, network, directory, seed)
    plan = within_budget(plan, network, objective, examples, directory, steps, minutes)
    return fit(network, objective, examples, plan, directory, seed, checkpoint_seconds)


def export_trained(name: str, data: Path, runs: Path, target: Path) -> None:
    """Write the averaged weights of a run into `target`, with all that is needed to load them."""
    directory = Path(runs) / name
    if name == CLASSIFIER:
        export_classifier(directory, training_set(name, data).images, CLASSIFIER_WIDTHS, Path(target))
    else:
        export_network(RECIPES[name], directory, Path(target))


def training_set(name: str, data: Path) -> ImageSet:
    """What `name` learns from, read from the files in `data`."""
    if name not in TRAINABLE:
        raise ModelError(f"the network to train must be one of {', '.join(TRAINABLE)}, got {name!r}")
    source = DATA_SETS["fashion-mnist" if name == CLASSIFIER else RECIPES[name].data]
    return source.read(Path(data), source.train)


def check_budget(steps: int | None, minutes: float | None) -> None:
    """At most one of the two, and more than nothing."""
    if steps is not None and minutes is not None:
        raise ModelError(f"give steps or minutes, one of the two, got {steps} steps and {minutes:g} minutes")
    if steps is not None and steps < 1:
        raise ModelError(f"steps must be at least 1, got {steps}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ModelError(f"minutes must be a number above 0, got {minutes:g}")


def within_budget(
    plan: TrainingPlan,
    network: nn.Module,
    objective: Objective,
    examples: Sequence[Tensor],
    directory: Path,
    steps: int | None,
    minutes: float | None,
) -> TrainingPlan:
    """The plan with its number of steps as asked for; a run that has begun keeps the number it began with."""
    if steps is None and (directory / CHECKPOINT).exists():
        steps = steps_done(directory)[1]
    if steps is None and minutes is not None:
        steps = steps_within(minutes, network, objective, examples, plan)
    return plan if steps is None else replace(plan, steps=steps)


def first_network(recipe: Recipe, runs: Path) -> PatchedUNet:
    """Fresh weights, or those of the run (or else the shipped network) that the recipe starts from."""
    network = PatchedUNet(build_unet(recipe.network), recipe.patch)
    if recipe.starts_from is not None:
        if (runs / recipe.starts_from / CHECKPOINT).exists():
            _require_finished(runs / recipe.starts_from, recipe)
            network.load_state_dict(averaged_weights(runs / recipe.starts_from))
        elif (ASSETS / recipe.starts_from).is_dir():
            network.load_state_dict(load_pretrained(recipe.starts_from).network.state_dict())
        else:
            raise ModelError(
                f"{recipe.name} starts from {recipe.starts_from}, found neither a run in {runs} nor shipped weights; "
                f"train {recipe.starts_from} first"
            )
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def examples_of(
    recipe: Recipe, pictures: ImageSet, network: nn.Module, directory: Path, seed: int
) -> tuple[Tensor, ...]:
    """Pictures and labels, or for reflow the pairs of the network it starts from (drawn once, then kept)."""
    if recipe.reflow_pairs == 0:
        return pictures.images, pictures.labels
    if not (directory / PAIRS).exists():
        save_couplings(couplings_of(recipe, pictures.labels, network, seed), directory / PAIRS)
    pairs = load_couplings(directory / PAIRS)
    return pairs.samples, pairs.labels, pairs.noise


def _require_finished(before: Path, recipe: Recipe) -> None:
    done, planned = steps_done(before)
    if done < planned:
        raise ModelError(
            f"{recipe.name} starts from {recipe.starts_from}, whose run in {before} is at step {done} of {planned}; "
            "finish that one first"
        )


def couplings_of(recipe: Recipe, labels: Tensor, network: nn.Module, seed: int) -> Couplings:
    """Noise and sample of the flow before its reflow, guidance off, with labels drawn from the training set."""
    rows = torch.randint(len(labels), (recipe.reflow_pairs,), generator=generator_of(seed, "labels", 0))
    samples, noise = draw_couplings(network.eval(), recipe.shape, labels[rows], recipe.reflow_steps, seed)
    return Couplings(samples, labels[rows], noise)
