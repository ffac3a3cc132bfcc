"""The figures of docs/method.md, from real trajectories of `fashion`: `python -m benchmarks.geometry_figure`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import geosprint
from geosprint.report.plots import BLUE, GREEN, GREY, ORANGE, RED, saved
from geosprint.schedule import build_schedule, curvature_density, log_snr_density, profile_density
from geosprint.threshold import most_pruned_below_score

DOCS = Path(__file__).parent.parent / "docs"
STEPS, SEED, TARGET = 200, 0, 1e-3
TRAJECTORIES, PROFILED_STEPS = 16, 100
BUDGET = 10


def recorded(model):
    """One trajectory as the test sees it, normalised, and what the search prunes of it."""
    walk = geosprint.record(model, [SEED], STEPS)
    points = walk.states[0].double()
    deviation = points.std(dim=0, correction=0)
    points = (points - points.mean(dim=0)) / torch.where(deviation > 1e-6 * deviation.max(), deviation, 1.0)
    return points, most_pruned_below_score(walk.gram(), TARGET), walk.timesteps


def in_its_plane(points):
    """The two directions that a trajectory moves in most, and the share of its variance in them."""
    centred = points - points.mean(dim=0)
    _, sizes, axes = torch.linalg.svd(centred, full_matrices=False)
    return (centred @ axes[:2].T).numpy(), float((sizes[:2] ** 2).sum() / (sizes**2).sum())


def along_and_off(window, points):
    """Each point as the test sees it: how far along the line through two kept points, how far off it."""
    direction = (window[1] - window[0]) / (window[1] - window[0]).norm()
    along = (points - window[0]) @ direction
    off = (points - window[0] - along[:, None] * direction).norm(dim=1)
    return along.numpy(), off.numpy()


def draw_geometry(model):
    points, pruning, times = recorded(model)
    flat, share = in_its_plane(points)
    kept = pruning.kept[0]
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    whole, test = figure.subplots(1, 2)
    whole.plot(*flat[~kept].T, "o", ms=3, color=GREY, alpha=0.6, label=f"{(~kept).sum()} pruned")
    whole.plot(*flat[kept].T, "o", ms=6, color=BLUE, label=f"{kept.sum()} kept")
    whole.annotate("noise", flat[0], xytext=(6, -4), textcoords="offset points")
    whole.annotate("sample", flat[-1], xytext=(6, 4), textcoords="offset points")
    whole.set(title=f"One trajectory of {STEPS} steps in its plane ({share:.0%} of its variance)")
    whole.set_aspect("equal", adjustable="datalim")
    whole.legend(frameon=False)
    places = np.flatnonzero(kept)
    first, second, next_kept = places[len(places) // 2 :][:3]
    stretch = np.arange(first, next_kept + 1)
    along, off = along_and_off(points[[first, second]], points[stretch])
    tested = stretch > second
    test.axhspan(0, pruning.thresholds[0], color=GREEN, alpha=0.15, label="nearer than τ: redundant")
    test.vlines(along[tested], 0, off[tested], color=GREY, lw=1)
    test.plot(along[tested][:-1], off[tested][:-1], "o", ms=4, color=GREY, label="pruned")
    test.plot(along[~tested & kept[stretch]], off[~tested & kept[stretch]], "o", ms=8, color=BLUE, label="the window")
    test.plot(along[-1], off[-1], "o", ms=8, color=RED, label="too far off: kept")
    test.axhline(0, color=BLUE, lw=1)
    test.set(
        title=f"The test at work, from t = {times[first]:.0f} to t = {times[next_kept]:.0f}",
        xlabel="along the line through the window", ylabel="residual: distance to that line",
    )  # fmt: skip
    test.legend(frameon=False)
    return saved(figure, DOCS / "geometry.png")


def draw_density(model):
    profile = geosprint.extract(model, trajectories=TRAJECTORIES, reference_steps=PROFILED_STEPS)
    steps = build_schedule(profile, BUDGET)
    times, noise = profile.timesteps[:-1], profile.noise
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    where, density = figure.subplots(1, 2)
    where.bar(times, profile.free_retention, width=times[0] / len(times), color=BLUE)
    where.set(title=f"How often {TRAJECTORIES} trajectories keep a step", ylabel="retention w(t)")
    for name, curve, colour in (
        ("uniform in log-SNR", log_snr_density(noise), GREY),
        ("from w(t)", curvature_density(profile.free_retention, times, noise), BLUE),
        ("the blend", profile_density(profile), RED),
    ):
        density.plot(noise.time_at(curve.clock), curve.values, color=colour, label=name)
    density.plot(steps.timesteps, np.full(BUDGET, 0.1), "|", ms=18, mew=2, color=ORANGE, label=f"{BUDGET} steps")
    density.set(title="The density of steps, and the steps at its quantiles", yscale="log", ylabel="density")
    for axes in (where, density):
        axes.set(xlabel="timestep t  (noise → clean)")
        axes.invert_xaxis()
    density.legend(frameon=False)
    return saved(figure, DOCS / "density.png")


def main():
    model = geosprint.load_model("fashion")
    print(draw_geometry(model))
    print(draw_density(model))


if __name__ == "__main__":
    main()
