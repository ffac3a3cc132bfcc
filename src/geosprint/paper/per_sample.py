"""Figure 6: how much samples differ from the universal profile, and whether complex ones have a higher error.

The second question is our own: a sample's complexity would be worth knowing if it predicted its error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.estimates import Estimate, bootstrap_mean, bootstrapped, endpoint_errors
from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting, as_numbers, estimate_in
from geosprint.paper.claims import Evidence, PaperExperiment, above, at, at_most, below, exactly
from geosprint.paper.figures import TIME_LABEL, Panel
from geosprint.paper.measuring import SHARE, Array, correlation, rank_correlation, smoothed_profiles
from geosprint.profile import CurvatureProfile
from geosprint.sampling import sample
from geosprint.schedule import build_schedule
from geosprint.threshold import least_score_at_share, most_pruned_below_score

TARGETS = ("0.01", "0.001", "0.0001")  # Figure 6 (b) shows three and does not say which
STEPS = 10  # of the universal schedule that all samples are drawn with
COMPLEXITIES = {"count": "nfe_0.001", "score": "score_at_share"}


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Prune every trajectory by itself, then draw the same seeds with the universal schedule."""
    model = setting.load()
    recording = setting.recording(model)
    walks, profile = recording.walks, recording.profile
    gram = walks.gram()
    drawn = sample(model, build_schedule(profile, STEPS).timesteps, setting.seeds, batch=setting.batch)
    columns: dict[str, Any] = {f"nfe_{target}": counts_at(gram, float(target)) for target in TARGETS}
    columns["score_at_share"] = least_score_at_share(gram, SHARE).scores
    columns["correlation"] = correlations_with_all(profile)
    columns["correlation_with_others"] = correlations_with_others(profile)
    columns["error"] = endpoint_errors(drawn, walks.states[:, -1].view_as(drawn))
    rows = [
        {"seed": seed, **{name: value[i].item() for name, value in columns.items()}}
        for i, seed in enumerate(setting.seeds)
    ]
    kept = ["".join("01"[int(one)] for one in row[:-1]) for row in profile.kept]
    return rows, _numbers_from(columns) | {"timesteps": profile.timesteps[:-1].tolist(), "kept": kept}


def counts_at(gram: Array, target: float) -> NDArray[np.intp]:
    """Steps that each trajectory retains at this score; the clean end is none."""
    return most_pruned_below_score(gram, target).kept[:, :-1].sum(axis=1)


def correlations_with_all(profile: CurvatureProfile) -> Array:
    """Of each sample's own retention with w(t), as in Figure 6 (c): itself and the forced window included."""
    return np.array([correlation(own, profile.retention) for own in profile.kept[:, :-1]])


def correlations_with_others(profile: CurvatureProfile) -> Array:
    """The same where nothing is sure to agree: with the w(t) of the others, from the first free step on."""
    free = profile.kept[:, profile.settings.window : -1].astype(np.float64)
    others = (free.sum(axis=0) - free) / max(len(free) - 1, 1)
    return np.array([correlation(own, rest) for own, rest in zip(free, others, strict=True)])


def _numbers_from(columns: dict[str, Array]) -> Numbers:
    """Spread of the counts, mean correlations, and how well complexity predicts the error."""
    numbers: Numbers = {"samples": len(columns["error"]), "steps": STEPS}
    for target in TARGETS:
        counts = columns[f"nfe_{target}"]
        numbers[f"nfe_{target}"] = float(counts.mean())
        numbers[f"nfe_{target}_largest_over_smallest"] = float(counts.max() / counts.min())
    for name in ("correlation", "correlation_with_others", "error"):
        numbers |= as_numbers(name, bootstrap_mean(columns[name]))
    for name, column in COMPLEXITIES.items():
        numbers |= as_numbers(f"{name}_predicts_error", rank_estimate(columns[column], columns["error"]))
    return numbers


def rank_estimate(complexity: Array, errors: Array) -> Estimate:
    """Spearman's correlation of complexity and error, with its interval over samples."""
    return bootstrapped(lambda rows: rank_correlation(complexity[rows], errors[rows]), len(errors))


def _spreads(finding: PaperFinding) -> Evidence:
    spreads = {target: finding.numbers[f"nfe_{target}_largest_over_smallest"] for target in TARGETS}
    return {f"score {target}": exactly(spread) for target, spread in spreads.items()}


def _ranks(finding: PaperFinding) -> Evidence:
    keys = {name: f"{name}_predicts_error" for name in COMPLEXITIES}
    # Findings of earlier versions have another key.
    earlier = {name: f"{name}_foretells_error" for name in COMPLEXITIES if keys[name] not in finding.numbers}
    return {name: estimate_in(finding.numbers, key) for name, key in {**keys, **earlier}.items()}


def _profiles(finding: PaperFinding) -> Rows:
    """Every sample's own retention, smoothed."""
    kept = {i: [letter == "1" for letter in row] for i, row in enumerate(finding.numbers["kept"])}
    return smoothed_profiles("sample", finding.numbers["timesteps"], kept)


COUNTS, CORRELATIONS = tuple(f"nfe_{target}" for target in TARGETS), ("correlation", "correlation_with_others")


PER_SAMPLE = PaperExperiment(
    "per-sample",
    "Figure 6: steps needed vary 1.2 to 1.4 times, profiles correlate 0.37 with the universal one",
    measure,
    figure=(
        Panel("t", "retention", TIME_LABEL, "retention w(t), smoothed", "mean ± std", rows=_profiles),
        Panel("seed", COUNTS, "steps a sample needs", "samples", kind="histograms"),
        Panel("seed", CORRELATIONS, "correlation with the universal profile", "samples", kind="histograms"),
        Panel("nfe_0.001", "error", "steps a sample needs at 0.001", f"RMSE at {STEPS} steps", kind="dots"),
    ),
    quick={"trajectories": 128},
    claims={
        "samples differ by 1.2 to 1.4 times in the steps they need (5.6, Figure 6b)": at_most(
            "most steps over fewest", 1.4, of=_spreads
        ),
        "a sample's profile correlates only 0.37 with the universal one (5.6, Figure 6c)": below(
            "mean correlation", 1, 0.37, of=at("correlation")
        ),
        "our question: a sample's complexity predicts its error (not in the paper)": above(
            f"rank correlation of the error at {STEPS} steps with the steps needed and with the score", of=_ranks
        ),
    },
)
