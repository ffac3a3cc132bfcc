"""Figure 1c: does where to step matter more than how? And do better solvers gain from our steps too?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from geosprint.paper.base import Experiment, Finding, Setting
from geosprint.paper.figures import AXIS_LABELS, draw_band, in_both_formats, known_metrics, make_logarithmic
from geosprint.paper.measuring import Judged, Yardstick, and_list
from geosprint.report.plots import BLUE, GREEN, GREY, RED

FIRST_ORDER = ("ddim", "geosprint")
DEFAULT = "uniform-trailing"  # within a timestep of what diffusers gives to DPM-Solver++ and UniPC
SECOND_ORDER = {
    "dpmpp-2m": (DEFAULT, "logsnr", "quadratic", "geosprint"),
    "unipc": (DEFAULT, "geosprint"),
}
RIVAL = "dpmpp-2m"

Place = tuple[str, str, int]  # solver, schedule, steps


def run(setting: Setting) -> Finding:
    """Every solver on its schedules at every K."""
    yardstick = Yardstick.of(setting)
    lines = [FIRST_ORDER, *((solver, name) for solver, names in SECOND_ORDER.items() for name in names)]
    places: list[Place] = [(solver, name, k) for solver, name in lines for k in setting.steps]
    judged = {place: yardstick.judge(yardstick.times_of(place[1], place[2], place[0]), place[0]) for place in places}
    rows = [
        {"solver": solver, "schedule": name, "steps": k, **yardstick.columns(judged[solver, name, k])}
        for solver, name, k in places
    ]
    numbers = {metric: _answers(yardstick, judged, metric) for metric in yardstick.metrics}
    return Finding("solver-order", setting, rows, numbers, verdict(numbers))


def _answers(yardstick: Yardstick, judged: dict[Place, Judged], metric: str) -> dict[str, Any]:
    """First order with our steps against second order on its default and on its best, and what our steps give both."""
    all_steps = yardstick.setting.steps
    ours = {k: judged[(*FIRST_ORDER, k)] for k in all_steps}
    best_schedule = {k: _best_schedule(yardstick, judged, k, metric) for k in all_steps}
    default = {str(k): yardstick.gap(ours[k], judged[RIVAL, DEFAULT, k], metric) for k in all_steps}
    best = {str(k): yardstick.gap(ours[k], judged[RIVAL, best_schedule[k], k], metric) for k in all_steps}
    gain = {
        solver: {
            str(k): yardstick.gap(judged[solver, "geosprint", k], judged[solver, DEFAULT, k], metric) for k in all_steps
        }
        for solver in SECOND_ORDER
    }
    return {
        "gap_to_default": default,  # DDIM + GeoSPRINT minus DPM++ 2M: below zero where first order wins
        "gap_to_best": best,
        "best_schedule": {str(k): name for k, name in best_schedule.items()},  # of DPM++ 2M, seen afterwards
        "beats_default_at": _wins(default),
        "beats_best_at": _wins(best),
        "our_schedule_minus_default": gain,  # for the same second-order solver: below zero where our steps help
    }


def _best_schedule(yardstick: Yardstick, judged: dict[Place, Judged], steps: int, metric: str) -> str:
    """The schedule on which DPM++ 2M is nearest."""
    means = {name: yardstick.repeated(judged[RIVAL, name, steps], metric).mean() for name in SECOND_ORDER[RIVAL]}
    return min(means, key=lambda name: means[name])


def _wins(gaps: dict[str, dict[str, float]]) -> list[int]:
    """The K at which the interval lies below zero."""
    return [int(k) for k, gap in gaps.items() if gap["high"] < 0]


def verdict(numbers: dict[str, Any]) -> str:
    """At which K the first order wins, and what the second order gains from our steps."""
    said = []
    for metric, name in (("rmse", "RMSE"), ("frechet_fine", "Fréchet distance to the fine solve")):
        found = numbers[metric]
        said.append(
            f"By {name}, DDIM + GeoSPRINT beats DPM-Solver++ 2M on its uniform default "
            f"{_at(found['beats_default_at'])} and on its best schedule {_at(found['beats_best_at'])}"
        )
    helped = {solver: _wins(gaps) for solver, gaps in numbers["rmse"]["our_schedule_minus_default"].items()}
    hurt = {
        solver: [int(k) for k, gap in gaps.items() if gap["low"] > 0]
        for solver, gaps in numbers["rmse"]["our_schedule_minus_default"].items()
    }
    ours = "; ".join(f"{solver} better {_at(helped[solver])}, worse {_at(hurt[solver])}" for solver in helped)
    return f"{'. '.join(said)}. Our steps instead of the default make (by RMSE) {ours}."


def _at(steps: list[int]) -> str:
    return f"at K = {and_list(steps)}" if steps else "at no K"


SOLVER_ORDER = Experiment(
    "solver-order",
    paper="Figure 1c: first-order DDIM on our schedule against second-order DPM-Solver++, and second order on ours",
    run=run,
    quick={"samples": 16, "fine_steps": 40, "steps": (5, 10, 30)},
)


COLOURS = {"ddim": RED, "dpmpp-2m": BLUE, "unipc": GREEN}
DASHES: dict[str, dict[str, Any]] = {
    "geosprint": {"ls": "-", "marker": "o", "lw": 2},
    "uniform-trailing": {"ls": "--", "marker": "s"},
    "logsnr": {"ls": "-.", "marker": "X"},
    "quadratic": {"ls": ":", "marker": "D"},
}


def plot(finding: Finding, path: Path) -> list[Path]:
    """Colours tell solvers, dashes tell schedules; bands of one standard deviation over repetitions."""
    metrics = known_metrics(finding.rows)
    figure = Figure(figsize=(4.8 * len(metrics) + 2.2, 4.4), layout="constrained")
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    lines = list(dict.fromkeys((row["solver"], row["schedule"]) for row in finding.rows))
    for axes, metric in zip(panels, metrics, strict=True):
        for solver, schedule in lines:
            rows = [row for row in finding.rows if (row["solver"], row["schedule"]) == (solver, schedule)]
            look = {"ms": 5, "lw": 1.3, "color": COLOURS.get(solver, GREY), **DASHES.get(schedule, {})}
            draw_band(axes, rows, "nfe", metric, label=f"{solver}, {schedule}", **look)
        make_logarithmic(axes, [row["nfe"] for row in finding.rows])
        axes.set(xlabel="network calls per sample (NFE)", ylabel=AXIS_LABELS[metric])
    panels[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    setting = finding.setting
    figure.suptitle(f"{setting.model}: {setting.samples} samples, mean ± std over {setting.repetitions} seeds")
    return in_both_formats(figure, path)
