"""Figures that somebody asks for by name: of profiles, budgets and samples. All others are charts of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from geosprint.extraction import Budget
from geosprint.files import write_whole
from geosprint.profile import CurvatureProfile
from geosprint.report.charts import charts_of
from geosprint.report.pictures import are_pictures, grid

# Okabe and Ito's colours, distinguishable with every kind of colour vision.
BLUE, ORANGE, GREEN, RED, GREY, PINK, SKY = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#777777", "#cc79a7", "#56b4e9",
)  # fmt: skip


def plot_profile(profile: CurvatureProfile, path: Path) -> Path:
    """Where the trajectories bend, the densities this gives, and how many states each sample needs."""
    charts = charts_of(profile)
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    retained, densities, counts = figure.subplots(1, 3, width_ratios=[3, 3, 2])
    for axes, name, colours in ((retained, "retention", (SKY, BLUE)), (densities, "densities", (GREY, BLUE, RED))):
        (_, times), _, _, *series = charts[name].columns.items()
        for (label, values), colour in zip(series, colours, strict=False):
            axes.plot(times, values, color=colour, lw=1.5, label=label)
        axes.invert_xaxis()
        axes.legend(frameon=False)
        axes.set_xlabel("timestep t  (noise → clean)")
    retained.set(title="How often a step is retained", ylabel="retention w(t)")
    densities.set(title="Density of steps", ylabel="density", yscale="log")
    counts.bar(*charts["counts"].columns.values(), color=GREEN)
    counts.set(title="States each sample needs", xlabel="retained states", ylabel="trajectories")
    return saved(figure, path)


def plot_budget(budget: Budget, path: Path) -> Path:
    """The oracle's curve: score against K."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    seen = budget.curve_scores > 0
    axes.plot(budget.curve_steps[seen], budget.curve_scores[seen], color=BLUE)
    axes.axhline(budget.target_score, color=GREY, ls="--", label=f"target {budget.target_score:g}")
    steps = len(budget.schedule)
    axes.plot([steps], [budget.score], "o", color=RED, label=f"{steps} steps, score {budget.score:.2g}")
    axes.set(xlabel="steps K", ylabel=r"projection score $\alpha_{traj}$", xscale="log", yscale="log")
    axes.legend(frameon=False)
    return saved(figure, path)


def picture_samples(samples: Tensor, path: Path) -> Path:
    """A plain grid of images, or a scatter of points."""
    if not are_pictures(samples):
        return side_by_side([("samples", samples)], path)
    larger = max(1, 48 // samples.shape[-1])  # tiny images are shown enlarged
    pixels = _square(samples).repeat(larger, axis=0).repeat(larger, axis=1)
    return write_whole(Path(path), lambda to: Image.fromarray(pixels).save(to, format="png"))


def side_by_side(columns: Sequence[tuple[str, Tensor]], path: Path) -> Path:
    """Samples under captions in one picture, images in grids and points as points: the same noise, drawn otherwise."""
    figure = Figure(figsize=(3.6 * len(columns), 4))
    figure.set_layout_engine("constrained", w_pad=0.08, h_pad=0.12)
    for axes, (caption, samples) in zip(figure.subplots(1, len(columns), squeeze=False)[0], columns, strict=True):
        axes.set_title(caption)
        if are_pictures(samples):
            pixels = _square(samples)
            larger = max(1, -(-800 // len(pixels)))  # so that shrinking to the figure leaves pixels even
            axes.imshow(pixels.repeat(larger, axis=0).repeat(larger, axis=1), cmap="gray", vmin=0, vmax=255)
            axes.set_axis_off()
        else:
            points = samples.flatten(1).numpy()
            axes.plot(points[:, 0], points[:, min(1, points.shape[1] - 1)], ".", ms=3, color=BLUE)
            axes.set(aspect="equal")
    return saved(figure, path)


def _square(samples: Tensor) -> NDArray[np.uint8]:
    return grid(samples, math.ceil(math.sqrt(len(samples))))


def saved(figure: Figure, path: Path) -> Path:
    """Write the figure whole, its frame reduced to two axes."""
    for axes in figure.axes:
        if not axes.images:
            axes.spines[["top", "right"]].set_visible(False)
    return write_whole(Path(path), lambda to: figure.savefig(to, dpi=120, format="png"))
