"""Figure 1c: does where to step matter more than how? And do better solvers gain from our steps too?"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, Evidence, PaperExperiment, below, estimates
from geosprint.paper.figures import draw_over_nfe, known_metrics, legend_beside, repetitions_of
from geosprint.paper.measuring import Bench, Line, SampleSet
from geosprint.report.plots import BLUE, GREEN, GREY, RED

FIRST_ORDER = ("ddim", "geosprint")
DEFAULT = "uniform-trailing"  # within a timestep of what diffusers gives to DPM-Solver++ and UniPC
SECOND_ORDER = {
    "dpmpp-2m": (DEFAULT, "logsnr", "quadratic", "geosprint"),
    "unipc": (DEFAULT, "geosprint"),
}
RIVAL = "dpmpp-2m"


def measure(setting: Setting) -> tuple[Rows, Numbers]:
    """Every solver on its schedules at every K."""
    bench = Bench.of(setting)
    pairs = [FIRST_ORDER, *((solver, name) for solver, names in SECOND_ORDER.items() for name in names)]
    samples, rows = bench.sample_lines([(*pair, k) for pair in pairs for k in setting.steps])
    return rows, {metric: _comparisons(bench, samples, metric) for metric in bench.metrics}


def _comparisons(bench: Bench, samples: dict[Line, SampleSet], metric: str) -> Numbers:
    """First order with our steps against second order on its default and on its best, and what our steps give both."""
    best_schedule = {k: _best_schedule(bench, samples, k, metric) for k in bench.setting.steps}
    to_default = bench.gaps(samples, FIRST_ORDER, (RIVAL, DEFAULT), metric)
    to_best = {
        str(k): bench.gap(samples[(*FIRST_ORDER, k)], samples[RIVAL, name, k], metric)
        for k, name in best_schedule.items()
    }
    return {
        "gap_to_default": to_default,  # DDIM + GeoSPRINT minus DPM++ 2M: below zero where first order wins
        "gap_to_best": to_best,
        "best_schedule": {str(k): name for k, name in best_schedule.items()},  # of DPM++ 2M, seen afterwards
        # For the same second-order solver: below zero where our steps help.
        "our_schedule_minus_default": {
            solver: bench.gaps(samples, (solver, "geosprint"), (solver, DEFAULT), metric) for solver in SECOND_ORDER
        },
    }


def _best_schedule(bench: Bench, samples: dict[Line, SampleSet], steps: int, metric: str) -> str:
    """The schedule on which DPM++ 2M has the lowest mean."""
    means = {name: bench.repeated(samples[RIVAL, name, steps], metric).mean() for name in SECOND_ORDER[RIVAL]}
    return min(means, key=lambda name: means[name])


def _gaps_from_30_steps_on(finding: PaperFinding, name: str) -> Evidence:
    metrics = {"RMSE": "rmse", "Fréchet distance": "frechet_fine"}
    gaps = {shown: finding.numbers[metric][name] for shown, metric in metrics.items()}
    return estimates({shown: {f"K = {k}": gaps[shown][k] for k in gaps[shown] if int(k) >= 30} for shown in gaps})


CLAIMS = (
    Claim(
        "first-order DDIM on our schedule outperforms DPM-Solver++ at NFE ≥ 30 (Figure 1c, finding 4)",
        "error of DDIM on our schedule minus that of DPM++ 2M on its default",
        below(),
        lambda found: _gaps_from_30_steps_on(found, "gap_to_default"),
    ),
    Claim(
        "our question: so it does against DPM-Solver++ on its best schedule (not in the paper)",
        "error of DDIM on our schedule minus that of DPM++ 2M on the best of its four",
        below(),
        lambda found: _gaps_from_30_steps_on(found, "gap_to_best"),
    ),
    Claim(
        "open question: second-order solvers gain from the schedule, too (6)",
        "RMSE of DPM++ 2M and UniPC on our schedule minus that on their default",
        below(),
        lambda found: estimates(found.numbers["rmse"]["our_schedule_minus_default"]),
    ),
)


COLOURS = {"ddim": RED, "dpmpp-2m": BLUE, "unipc": GREEN}
DASHES: dict[str, dict[str, Any]] = {
    "geosprint": {"ls": "-", "marker": "o", "lw": 2},
    "uniform-trailing": {"ls": "--", "marker": "s", "lw": 1.3},
    "logsnr": {"ls": "-.", "marker": "X", "lw": 1.3},
    "quadratic": {"ls": ":", "marker": "D", "lw": 1.3},
}


def draw(finding: PaperFinding) -> Figure:
    """Colours tell solvers, dashes tell schedules; bands of one standard deviation over repetitions."""

    def look(solver: str, schedule: str) -> dict[str, Any]:
        return {"color": COLOURS.get(solver, GREY), **DASHES.get(schedule, {})}

    figure, panels = draw_over_nfe(finding, known_metrics(finding.rows), 4.8, look)
    legend_beside(panels[-1])
    figure.suptitle(f"{finding.setting.model}: {repetitions_of(finding)}")
    return figure


SOLVER_ORDER = PaperExperiment(
    "solver-order",
    "Figure 1c: first-order DDIM on our schedule against second-order DPM-Solver++, and second order on ours",
    *(measure, CLAIMS, draw),
    quick={"samples": 16, "fine_steps": 40, "steps": (5, 10, 30)},
)
