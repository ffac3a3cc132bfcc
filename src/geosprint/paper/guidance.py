"""The limitation the paper names: does the schedule of one guidance scale serve another?"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geosprint.errors import ModelError
from geosprint.estimates import bootstrap_mean, endpoint_errors
from geosprint.models.networks import PretrainedModel
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, above, exactly, not_above
from geosprint.paper.figures import TIME_LABEL, panels
from geosprint.paper.measuring import as_numbers, correlation, estimate_in, extracted, ratio_of_means
from geosprint.profile import CurvatureProfile, agreement
from geosprint.report.plots import BLUE, GREEN, ORANGE, RED
from geosprint.sampling import sample
from geosprint.schedule import SMOOTHING, build_schedule, smoothed
from geosprint.teacher import FINE_SOLVER, fine_timesteps

Profiles = dict[float, CurvatureProfile]  # by scale
Errors = dict[tuple[float, float], NDArray[np.float64]]  # of held-out samples, by (made at, used at)

SCALES = (1.0, 3.0, 5.0, 7.5)
STEPS = 10
HALVINGS = 20


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Profile the model at every scale, and draw at every scale with the schedules of all."""
    size, model = replace(affordable(setting), progress=False), _conditional_model(setting)
    profiles = {scale: extracted(_guided(model, scale, size.trajectories), size) for scale in SCALES}
    errors = _errors_of_all(profiles, model, size)
    rows = [_pair_row(made, used, profiles, errors, size) for used in SCALES for made in SCALES]
    return rows, _numbers_from(profiles)


def affordable(setting: Setting) -> Setting:
    """A smaller setting: there are four scales, and guidance doubles the calls."""
    return replace(
        setting,
        trajectories=max(setting.trajectories // 2, 2),
        reference_steps=max(setting.reference_steps // 2, STEPS),
        samples=max(setting.samples // 4, 2),
        fine_steps=max(setting.fine_steps // 3, STEPS),
    )


def _conditional_model(setting: Setting) -> PretrainedModel:
    """The setting's model, if it was trained with classes."""
    model = setting.load()
    if not isinstance(model, PretrainedModel) or model.card.classes is None:
        raise ModelError(
            f"guidance needs a class-conditional network such as fashion, got {setting.model!r}, which knows no "
            "classes; name another model or leave this experiment out"
        )
    return model


def _guided(model: PretrainedModel, scale: float, count: int) -> PretrainedModel:
    """The model drawing one class after another at this guidance scale."""
    assert model.card.classes is not None
    return replace(model, labels=torch.arange(count) % model.card.classes, guidance=scale)


def _errors_of_all(profiles: Profiles, model: PretrainedModel, size: Setting) -> Errors:
    """The error of every held-out sample to a reference solve at the same scale."""
    seeds, errors = size.fresh_seeds(), {}
    for used in SCALES:
        asked = _guided(model, used, size.samples)
        fine = sample(asked, fine_timesteps(asked.noise, size.fine_steps), seeds, FINE_SOLVER, batch=size.batch)
        for made, profile in profiles.items():
            drawn = sample(asked, build_schedule(profile, STEPS).timesteps, seeds, batch=size.batch)
            errors[made, used] = endpoint_errors(drawn, fine)
    return errors


def _pair_row(made: float, used: float, profiles: Profiles, errors: Errors, size: Setting) -> dict[str, Any]:
    """How alike the two profiles are, and what it costs to use the schedule of the one for the other."""
    one, other = profiles[made], profiles[used]
    found = agreement(one.free_retention, other.free_retention, one.timesteps[:-1], one.noise, STEPS)
    return {
        "made_at": made,
        "used_at": used,
        **asdict(found),
        **as_numbers("rmse", bootstrap_mean(errors[made, used])),
        **as_numbers("relative", ratio_of_means(errors[made, used], errors[used, used])),
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
    halves = [(one.halves(halving)[0], other.halves(halving)[1]) for halving in range(HALVINGS)]
    return float(np.mean([correlation(*pair) for pair in halves]))


def _numbers_from(profiles: Profiles) -> Numbers:
    """How far halves agree across scales and within one, and the profiles."""
    every = list(profiles.values())
    within = [correlation_of_halves(profile, profile) for profile in every]
    between = [correlation_of_halves(one, other) for one in every for other in every if one is not other]
    return {
        "steps": STEPS,
        "halves_correlation_within": float(np.mean(within)),
        "halves_correlation_across": float(np.mean(between)),
        "scales": list(profiles),
        "timesteps": every[0].timesteps[:-1].tolist(),
        "retention": {f"{scale:g}": profile.free_retention.tolist() for scale, profile in profiles.items()},
    }


def _costs(finding: PaperFinding) -> Evidence:
    rows = [row for row in finding.rows if row["made_at"] != row["used_at"]]
    return {f"{row['made_at']:g} for {row['used_at']:g}": estimate_in(row, "relative") for row in rows}


def _halves(finding: PaperFinding, of: str) -> float:
    return float(finding.numbers[f"halves_correlation_{of}"])


CLAIMS = (
    Claim(
        "open question: a schedule made at one guidance scale serves others (Limitations)",
        f"RMSE at {STEPS} steps with another scale's schedule over that with its own",
        not_above(1),
        _costs,
    ),
    Claim(
        "our question: profiles of two scales agree as well as those of one (not in the paper)",
        "correlation of halves of the samples across scales over that within one",
        above(0, 1),
        lambda found: {"": exactly(_halves(found, "across") / _halves(found, "within"))},
    ),
)


STYLES = [(BLUE, "-"), (GREEN, "--"), (ORANGE, "-."), (RED, ":")]


def draw(finding: PaperFinding) -> Figure:
    """The profiles, and two tables of pairs of scales in colour."""
    figure, (profiles, related, costs) = panels(3, 13, 3.8)
    numbers, rows = finding.numbers, finding.rows
    for (scale, retention), (colour, dashes) in zip(numbers["retention"].items(), STYLES, strict=True):
        curve = smoothed(np.array(retention), SMOOTHING)
        profiles.plot(numbers["timesteps"], curve, dashes, color=colour, lw=1.8, label=f"guidance {scale}")
    profiles.set(title="Profiles, smoothed", xlabel=TIME_LABEL, ylabel="retention w(t)")
    profiles.invert_xaxis()
    profiles.legend(frameon=False)
    lowest = min(row["correlation"] for row in rows)
    _draw_pairs(related, finding, "correlation", "Correlation of the profiles", "cividis", (lowest, 1.0))
    reach = max(0.01, *(abs(row["relative"] - 1) for row in rows))  # white is no cost, on a scale of both signs
    title = f"RMSE at {numbers['steps']} steps, relative to its own schedule"
    _draw_pairs(costs, finding, "relative", title, "PuOr_r", (1 - reach, 1 + reach))
    costs.set_xlabel(f"{costs.get_xlabel()}   (* 95 % interval excludes 1)")
    figure.suptitle(
        f"{finding.setting.model}: {rows[0]['trajectories']} trajectories of {rows[0]['reference_steps']} steps, "
        f"{rows[0]['samples']} held-out samples"
    )
    return figure


def _draw_pairs(
    axes: Any, finding: PaperFinding, column: str, title: str, colours: str, limits: tuple[float, float]
) -> None:
    scales = finding.numbers["scales"]
    table = np.full((len(scales), len(scales)), np.nan)
    for row in finding.rows:
        across, down = scales.index(row["made_at"]), scales.index(row["used_at"])
        table[down, across] = row[column]
        sure = "*" if column == "relative" and (row["relative_low"] > 1 or row["relative_high"] < 1) else ""
        box = {"fc": "white", "ec": "none", "alpha": 0.75, "pad": 1.5}
        axes.text(across, down, f"{row[column]:.2f}{sure}", ha="center", va="center", bbox=box)
    axes.figure.colorbar(axes.imshow(table, cmap=colours, vmin=limits[0], vmax=limits[1]), ax=axes)
    names = [f"{scale:g}" for scale in scales]
    axes.set_xticks(range(len(scales)), names)
    axes.set_yticks(range(len(scales)), names)
    axes.set(title=title, xlabel="schedule made at guidance", ylabel="used at guidance")


GUIDANCE = PaperExperiment(
    "guidance", "Limitations: whether a schedule made at one guidance scale serves others", measure, CLAIMS, draw
)
