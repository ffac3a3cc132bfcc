"""The limitation the paper names: does the schedule of one guidance scale serve another?"""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import torch

from geosprint.errors import ModelError
from geosprint.estimates import bootstrap_mean, endpoint_errors
from geosprint.integrations.adapter import PipelineModel, as_model
from geosprint.models.base import Model
from geosprint.models.networks import PretrainedModel
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers, estimate_in
from geosprint.paper.claims import Evidence, PaperExperiment, above, exactly, not_above
from geosprint.paper.figures import TIME_LABEL, Panel
from geosprint.paper.measuring import correlation, ratio_of_means, smoothed_profiles
from geosprint.profile import CurvatureProfile, agreement
from geosprint.sampling import sample
from geosprint.schedule import build_schedule
from geosprint.teacher import FINE_SOLVER, fine_timesteps

Profiles = dict[float, CurvatureProfile]  # by scale

SCALES = (1.0, 3.0, 5.0, 7.5)
STEPS = 10
HALVINGS = 20
ENOUGH = 24  # samples: fewer say nothing


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Profile the model at every scale, and draw at every scale with the schedules of all."""
    size, model = affordable(setting), setting.load()
    profiles = {scale: size.extract(_guided(model, scale, size.trajectories)) for scale in SCALES}
    rows = [row for scale in SCALES for row in _rows_used_at(scale, profiles, model, size)]
    return rows, _numbers_from(profiles)


def affordable(setting: Setting) -> Setting:
    """A smaller setting: there are four scales, and guidance doubles the calls."""
    return replace(
        setting,
        trajectories=max(setting.trajectories // 2, 2),
        reference_steps=max(setting.reference_steps // 2, STEPS),
        samples=min(setting.samples, max(setting.samples // 4, ENOUGH)),
        fine_steps=max(setting.fine_steps // 3, STEPS),
        progress=False,
    )


def _guided(model: Model, scale: float, count: int) -> Model:
    """The model at this guidance scale, drawing one class or prompt after another."""
    if isinstance(model, PipelineModel) and model.conditions.get("guidance_scale") is not None:
        return as_model(model.pipe, replace(model.inputs, guidance_scale=scale))
    if isinstance(model, PretrainedModel) and model.card.classes is not None:
        return replace(model, labels=torch.arange(count) % model.card.classes, guidance=scale)
    raise ModelError(
        f"guidance needs a class-conditional network such as fashion, or a pipeline such as scenes; {model.name!r} "
        "takes no guidance scale: name another model or leave this experiment out"
    )


def _rows_used_at(used: float, profiles: Profiles, model: Model, size: Setting) -> Rows:
    """What it costs to draw at this scale with the schedules of all, and how alike the profiles are."""
    asked, seeds = _guided(model, used, size.samples), size.fresh_seeds()
    fine = sample(asked, fine_timesteps(asked.noise, size.fine_steps), seeds, FINE_SOLVER, batch=size.batch)
    errors = {}
    for made, profile in profiles.items():
        drawn = sample(asked, build_schedule(profile, STEPS).timesteps, seeds, batch=size.batch)
        errors[made] = endpoint_errors(drawn, fine)
    here, times = profiles[used].free_retention, profiles[used].timesteps[:-1]
    sizes = {name: getattr(size, name) for name in ("trajectories", "reference_steps", "samples", "fine_steps")}
    return [
        {
            "made_at": made,
            "used_at": used,
            **asdict(agreement(profile.free_retention, here, times, profile.noise, STEPS)),
            **as_numbers("rmse", bootstrap_mean(errors[made])),
            **as_numbers("relative", ratio_of_means(errors[made], errors[used])),
            "steps": STEPS,
            **sizes,
        }
        for made, profile in profiles.items()
    ]


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


def _across_over_within(finding: PaperFinding) -> Evidence:
    across, within = (finding.numbers[f"halves_correlation_{of}"] for of in ("across", "within"))
    return {"": exactly(across / within)}


def _profiles(finding: PaperFinding) -> Rows:
    """w(t) of every scale, smoothed."""
    retention = {float(scale): kept for scale, kept in finding.numbers["retention"].items()}
    return smoothed_profiles("guidance", finding.numbers["timesteps"], retention)


MADE, COST = "schedule made at guidance", f"RMSE at {STEPS} steps over that of its own schedule"
GUIDANCE = PaperExperiment(
    "guidance",
    "Limitations: whether a schedule made at one guidance scale serves others",
    measure,
    figure=(
        Panel("t", "retention", TIME_LABEL, "retention w(t), smoothed", by="guidance", rows=_profiles),
        Panel("{made_at:g}", "correlation", MADE, "correlation of profiles", by="used_at", kind="dots"),
        Panel("{made_at:g}", "relative", MADE, COST, by="used_at", kind="dots", level=1),
    ),
    claims={
        "open question: a schedule made at one guidance scale serves others (Limitations)": not_above(
            f"RMSE at {STEPS} steps with another scale's schedule over that with its own", 1, of=_costs
        ),
        "our question: profiles of two scales agree as well as those of one (not in the paper)": above(
            "correlation of halves of the samples across scales over that within one", 0, 1, of=_across_over_within
        ),
    },
)
