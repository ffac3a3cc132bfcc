"""The limitation the paper names: does the schedule of one guidance scale serve another?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.errors import ModelError
from geosprint.extraction import extract
from geosprint.metrics.estimates import bootstrap_mean, endpoint_errors
from geosprint.models.networks import PretrainedModel
from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.convergence import retention_of
from geosprint.paper.figures import in_both_formats
from geosprint.paper.measuring import correlation, ratio_of_means
from geosprint.profile import CurvatureProfile, agreement
from geosprint.report.plots import BLUE, GREEN, ORANGE, RED
from geosprint.sampling import sample
from geosprint.schedule import SMOOTHING, build_schedule, smoothed
from geosprint.teacher import FINE_SOLVER, fine_timesteps

Array = NDArray[np.float64]

SCALES = (1.0, 3.0, 5.0, 7.5)
STEPS = 10
SOLVER = "ddim"
HALVINGS = 20


def run(setting: Setting) -> Finding:
    """Profile the model at every scale, and draw at every scale with the schedules of all."""
    size = affordable(setting)
    model = conditional_model(setting)
    profiles = {scale: profile_at(scale, model, size) for scale in SCALES}
    errors = errors_of_all(profiles, model, size)
    rows = [pair_row(made, used, profiles, errors, size) for used in SCALES for made in SCALES]
    numbers = numbers_from(rows, profiles)
    return Finding("guidance", setting, rows, numbers, verdict(numbers))


def affordable(setting: Setting) -> Setting:
    """A smaller setting: there are four scales, and guidance doubles the calls."""
    return replace(
        setting,
        trajectories=max(setting.trajectories // 2, 2),
        reference_steps=max(setting.reference_steps // 2, STEPS),
        samples=max(setting.samples // 4, 2),
        fine_steps=max(setting.fine_steps // 3, STEPS),
    )


def conditional_model(setting: Setting) -> PretrainedModel:
    """The setting's model, if it was taught classes."""
    model = setting.load()
    if not isinstance(model, PretrainedModel) or model.card.classes is None:
        raise ModelError(
            f"guidance needs a class-conditional network such as fashion, got {setting.model!r}, which knows no "
            "classes; name another model or leave this experiment out"
        )
    return model


def guided(model: PretrainedModel, scale: float, count: int) -> PretrainedModel:
    """The model drawing one class after another, each exaggerated by this scale."""
    assert model.card.classes is not None
    return replace(model, labels=torch.arange(count) % model.card.classes, guidance=scale)


def profile_at(scale: float, model: PretrainedModel, size: Setting) -> CurvatureProfile:
    """Where trajectories bend at this scale; the same seeds and classes at every scale."""
    asked = guided(model, scale, size.trajectories)
    return extract(asked, size.trajectories, size.reference_steps, SOLVER, seed=size.seed, batch=size.batch)


def errors_of_all(
    profiles: dict[float, CurvatureProfile], model: PretrainedModel, size: Setting
) -> dict[tuple[float, float], Array]:
    """Error of every fresh sample to a fine solve at the same scale, by (made at, used at)."""
    seeds, errors = size.fresh_seeds(), {}
    for used in SCALES:
        asked = guided(model, used, size.samples)
        fine = sample(asked, fine_timesteps(asked.noise, size.fine_steps), seeds, FINE_SOLVER, batch=size.batch)
        for made, profile in profiles.items():
            drawn = sample(asked, build_schedule(profile, STEPS).timesteps, seeds, SOLVER, batch=size.batch)
            errors[made, used] = endpoint_errors(drawn, fine)
    return errors


def pair_row(
    made: float,
    used: float,
    profiles: dict[float, CurvatureProfile],
    errors: dict[tuple[float, float], Array],
    size: Setting,
) -> dict[str, Any]:
    """How alike the two profiles are, and what it costs to use the schedule of the one for the other."""
    one, other = profiles[made], profiles[used]
    found = agreement(one.free_retention, other.free_retention, one.timesteps[:-1], one.noise, STEPS)
    error = bootstrap_mean(errors[made, used])
    cost = ratio_of_means(errors[made, used], errors[used, used])
    return {
        "made_at": made,
        "used_at": used,
        **found.__dict__,
        "rmse": error.value,
        "rmse_low": error.low,
        "rmse_high": error.high,
        "relative": cost.value,
        "relative_low": cost.low,
        "relative_high": cost.high,
        "steps": STEPS,
        "trajectories": size.trajectories,
        "reference_steps": size.reference_steps,
        "samples": size.samples,
        "fine_steps": size.fine_steps,
    }


def correlation_of_halves(one: CurvatureProfile, other: CurvatureProfile) -> float:
    """Of one profile's retention in half of the seeds with the other's in the other half, over random halvings.

    No seed is on both sides, and both sides are as small, so that scales can be held against one scale by itself.
    """
    count, found = len(one.kept), []
    for halving in range(HALVINGS):
        shuffled = np.random.default_rng(halving).permutation(count)
        first, second = shuffled[: count // 2], shuffled[count // 2 :]
        found.append(correlation(retention_of(one, first), retention_of(other, second)))
    return float(np.mean(found))


def numbers_from(rows: list[dict[str, Any]], profiles: dict[float, CurvatureProfile]) -> dict[str, Any]:
    """The least agreement and the highest cost between scales, and how far halves of one scale agree."""
    across = [row for row in rows if row["made_at"] != row["used_at"]]
    worst = max(across, key=lambda row: row["relative"])
    every = list(profiles.values())
    within = [correlation_of_halves(profile, profile) for profile in every]
    between = [correlation_of_halves(one, other) for one in every for other in every if one is not other]
    return {
        "steps": STEPS,
        "least_correlation": min(row["correlation"] for row in across),
        "least_fuzzy_jaccard": min(row["fuzzy_jaccard"] for row in across),
        "halves_correlation_within": float(np.mean(within)),
        "halves_correlation_across": float(np.mean(between)),
        "highest_cost": worst["relative"],
        "highest_cost_low": worst["relative_low"],
        "highest_cost_high": worst["relative_high"],
        "highest_cost_made_at": worst["made_at"],
        "highest_cost_used_at": worst["used_at"],
        "mean_cost": float(np.mean([row["relative"] for row in across])),
        "surely_worse": sum(row["relative_low"] > 1 for row in across),
        "surely_better": sum(row["relative_high"] < 1 for row in across),
        "pairs": len(across),
        "scales": sorted({row["used_at"] for row in rows}),
        "timesteps": next(iter(profiles.values())).timesteps[:-1].tolist(),
        "retention": {f"{scale:g}": profile.free_retention.tolist() for scale, profile in profiles.items()},
    }


def verdict(numbers: dict[str, Any]) -> str:
    """Whether a schedule may travel between scales."""
    worse, better, pairs = numbers["surely_worse"], numbers["surely_better"], numbers["pairs"]
    across, within = numbers["halves_correlation_across"], numbers["halves_correlation_within"]
    alike = "no more than other samples of one scale do" if across >= within else "more than other samples do"
    travels = (
        "so a schedule does travel between scales"
        if not worse
        else "so a schedule is best made at the scale it is used at"
        if worse > better
        else "and its own scale is not the best one to make it at"
    )
    cost, low, high = (numbers[f"highest_cost{end}"] for end in ("", "_low", "_high"))
    return (
        f"Profiles at guidance {' / '.join(f'{scale:g}' for scale in numbers['scales'])} differ {alike} "
        f"(halves correlate {across:.2f} across scales, {within:.2f} within one). At {numbers['steps']} steps the "
        f"schedule of another scale is surely worse in {worse} and surely better in {better} of {pairs} pairs, "
        f"at most {cost:.2f} times the error (made at {numbers['highest_cost_made_at']:g}, "
        f"used at {numbers['highest_cost_used_at']:g}; "
        f"{low:.2f} to {high:.2f}), {travels}."
    )


GUIDANCE = Experiment(
    "guidance", paper="Limitations: whether a schedule made at one guidance scale serves others", run=run
)


STYLES = [(BLUE, "-"), (GREEN, "--"), (ORANGE, "-."), (RED, ":")]


def plot(finding: Finding, path: Path) -> list[Path]:
    """The profiles, and two tables of pairs of scales in colour."""
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    profiles, related, costs = figure.subplots(1, 3)
    numbers = finding.numbers
    for (scale, retention), (colour, dashes) in zip(numbers["retention"].items(), STYLES, strict=True):
        curve = smoothed(np.array(retention), SMOOTHING)
        profiles.plot(numbers["timesteps"], curve, dashes, color=colour, lw=1.8, label=f"guidance {scale}")
    profiles.set(title="Profiles, smoothed", xlabel="timestep t  (noise → clean)", ylabel="retention w(t)")
    profiles.invert_xaxis()
    profiles.legend(frameon=False)
    lowest = min(row["correlation"] for row in finding.rows)
    _plot_pairs(figure, related, finding, "correlation", "Correlation of the profiles", "cividis", (lowest, 1.0))
    title = f"RMSE at {numbers['steps']} steps, relative to its own schedule"
    reach = max(
        max(abs(row["relative"] - 1) for row in finding.rows), 0.01
    )  # white is no cost, on a scale of both signs
    _plot_pairs(figure, costs, finding, "relative", title, "PuOr_r", (1 - reach, 1 + reach))
    first = finding.rows[0]
    figure.suptitle(
        f"{finding.setting.model}: {first['trajectories']} trajectories of {first['reference_steps']} steps, "
        f"{first['samples']} fresh samples"
    )
    return in_both_formats(figure, path)


def _plot_pairs(
    figure: Figure, axes: Any, finding: Finding, column: str, title: str, colours: str, limits: tuple[float, float]
) -> None:
    scales = finding.numbers["scales"]
    table = np.full((len(scales), len(scales)), np.nan)
    for row in finding.rows:
        place = scales.index(row["used_at"]), scales.index(row["made_at"])
        table[place] = row[column]
        sure = "*" if column == "relative" and (row["relative_low"] > 1 or row["relative_high"] < 1) else ""
        label = {"ha": "center", "va": "center", "bbox": {"fc": "white", "ec": "none", "alpha": 0.75, "pad": 1.5}}
        axes.text(place[1], place[0], f"{row[column]:.2f}{sure}", **label)
    drawn = axes.imshow(table, cmap=colours, vmin=limits[0], vmax=limits[1])
    figure.colorbar(drawn, ax=axes)
    names = [f"{scale:g}" for scale in scales]
    axes.set_xticks(range(len(scales)), names)
    axes.set_yticks(range(len(scales)), names)
    said = "schedule made at guidance" + ("   (* 95 % interval excludes 1)" if column == "relative" else "")
    axes.set(title=title, xlabel=said, ylabel="used at guidance")
