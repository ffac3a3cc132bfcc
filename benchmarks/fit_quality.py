"""Fitted solvers side by side with the known ones, each on the closed form that is best for it: docs/results/fit.

Run `python -m benchmarks.fit_quality` for all models in the box (about 40 minutes on one core) or name some; rows of
the others stay as they are. Which closed form is best for a known solver is taken from results.csv where it holds it,
and found anew where it does not.
"""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.comparison.plan import FRESH_SEED
from geosprint.files import as_csv, write_text
from geosprint.fitting.fit import fit
from geosprint.metrics.endpoint import bootstrap_mean, endpoint_errors
from geosprint.metrics.features import default_features, load_features
from geosprint.metrics.frechet import frechet_distance
from geosprint.models.registry import load_model
from geosprint.sampling import sample
from geosprint.search.fine import FINE_SOLVER, fine_timesteps

Array = NDArray[np.float64]

OUT = Path(__file__).parent.parent / "docs" / "results" / "fit"
RIVALS = ("ddim", "dpmpp-2m", "unipc", "deis", "ipndm")
SCOUTS = 16  # judged samples on which all closed forms are tried for a rival; the best are measured on all
FINALISTS = 3
FINE_STEPS = 100
SMALL = ((5, 8, 10, 15, 20), 256)
NETWORK = ((5, 8, 10, 15, 20), 64)
MODELS = {
    "gaussian": SMALL,
    "digits": SMALL,
    "fashion": NETWORK,
    "fashion-flow": NETWORK,
    "cifar10": ((5, 10), 64),
}
LONG = 50  # steps of uniform DDIM, for comparison


@dataclass(frozen=True)
class Row:
    """One solver at one number of steps on one model."""

    model: str
    steps: int
    solver: str
    schedule: str
    rmse: float
    low: float
    high: float
    frechet: float
    over_fitted: float  # its error over that of the fitted solver
    gap_low: float  # interval of its error less that of the fitted solver, on the same noise
    gap_high: float
    build_calls: int


def rows_of(name: str, known: dict[tuple[str, str], str]) -> Iterator[Row]:
    """Measure one model; `known` are closed forms that are best for a solver and a number of steps."""
    counts, samples = MODELS[name]
    model = load_model(name)
    features = load_features(default_features(model.name, model.shape))
    seeds = range(FRESH_SEED, FRESH_SEED + samples)
    fine = sample(model, fine_timesteps(model.noise, FINE_STEPS), seeds, FINE_SOLVER)

    def drawn(times: Array, solver: Any, count: int = samples) -> tuple[Array, torch.Tensor]:
        made = sample(model, times, seeds[:count], solver)
        return endpoint_errors(made, fine[:count]), made

    def row(steps: int, solver: str, schedule: str, found: tuple[Array, torch.Tensor], own: Array, calls: int) -> Row:
        errors, made = found
        error, gap = bootstrap_mean(errors), bootstrap_mean(errors - own)
        distance = frechet_distance(features(made), features(fine))
        over = error.value / float(own.mean())
        return Row(
            name, steps, solver, schedule, error.value, error.low, error.high, distance, over, gap.low, gap.high, calls
        )

    names = applicable_baselines(model.noise)
    for steps in counts:
        begun = time.monotonic()
        fitted = fit(model, steps)
        told = fitted.schedule.provenance
        found = drawn(fitted.schedule.timesteps, fitted)
        own = found[0]
        yield row(steps, "fitted", told["method"].removeprefix("fitted on "), found, own, told["calls"])
        print(f"{name} {steps}: fitted {own.mean():.4f}, {time.monotonic() - begun:.0f} s", flush=True)
        for solver in RIVALS:
            places = {place: BASELINES[place](model.noise, steps) for place in names}
            best = [known[solver, str(steps)]] if (solver, str(steps)) in known else None
            if best is None:
                scouted = {place: drawn(times, solver, SCOUTS)[0].mean() for place, times in places.items()}
                best = sorted(places, key=scouted.__getitem__)[:FINALISTS]
            tried = {place: drawn(places[place], solver) for place in best}
            nearest = min(tried, key=lambda place: tried[place][0].mean())
            yield row(steps, solver, nearest, tried[nearest], own, 0)
        if steps == 10:
            long = drawn(BASELINES["uniform-trailing"](model.noise, LONG), "ddim")
            yield row(LONG, "ddim", "uniform-trailing", long, own, 0)


def geometric_mean(ratios: list[float]) -> float:
    """The mean of ratios."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def page(rows: list[dict[str, str]]) -> str:
    """The table and the means, in words."""
    cells: dict[tuple[str, int], dict[str, dict[str, str]]] = {}
    for row in rows:
        if int(row["steps"]) != LONG:
            cells.setdefault((row["model"], int(row["steps"])), {})[row["solver"]] = row
    table = [
        ["model", "K", "fitted", *RIVALS, "fitted on"],
        ["---", "---:", "---:", *["---:"] * len(RIVALS), "---"],
        *(
            [model, str(steps), _shown(cell["fitted"]), *map(_shown_against, _rivals(cell)), cell["fitted"]["schedule"]]
            for (model, steps), cell in cells.items()
        ),
    ]
    networks = [cell for (model, _), cell in cells.items() if model not in ("gaussian", "digits")]
    long = [f"{row['model']} {float(row['over_fitted']):.2f}" for row in rows if int(row["steps"]) == LONG]
    calls = max(int(row["build_calls"]) for row in rows)
    return f"""# Fitted solvers

Made by `python -m benchmarks.fit_quality`. RMSE to a fine solve (100 Heun steps) from the same noise, on seeds from
10,000,000 on, which no fit has seen; in brackets the squared Fréchet distance to the fine solve's samples. Every known
solver stands on the closed-form schedule that is best for it on these very samples, which favours it; `×` is its error
over that of the fitted solver. Intervals are in [results.csv](results.csv).

{_lines(table)}

Geometric means, and in how many cells the solver is nearer beyond chance (paired 95 % bootstrap interval):

{_means("All models", list(cells.values()))}

{_means("Trained networks alone", networks)}

RMSE of {LONG} uniform DDIM steps over that of 10 fitted ones: {", ".join(long)}.

Network calls of a fit, everything included: at most {calls:,}.
"""


def _means(about: str, cells: list[dict[str, dict[str, str]]]) -> str:
    """Ratios of every known solver to the fitted one, and of the best of them in each cell."""

    def line(solver: str, chosen: list[dict[str, str]]) -> list[str]:
        fitted = [cell["fitted"] for cell in cells]
        errors = [float(row["over_fitted"]) for row in chosen]
        distances = [float(row["frechet"]) / float(own["frechet"]) for row, own in zip(chosen, fitted, strict=True)]
        nearer = sum(float(row["gap_high"]) < 0 for row in chosen)
        return [
            solver,
            f"{geometric_mean(errors):.2f}",
            f"{geometric_mean(distances):.2f}",
            f"{nearer} of {len(cells)}",
        ]

    if not cells:
        return ""
    best = [min(_rivals(cell), key=lambda row: float(row["rmse"])) for cell in cells]
    return _lines(
        [
            [about, "RMSE over fitted", "F² over fitted", "nearer than fitted"],
            ["---", "---:", "---:", "---:"],
            *(line(solver, [cell[solver] for cell in cells]) for solver in RIVALS),
            line("the best of the five", best),
        ]
    )


def _rivals(cell: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    return [cell[solver] for solver in RIVALS]


def _lines(table: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def _shown_against(row: dict[str, str]) -> str:
    return f"{_shown(row)}, {float(row['over_fitted']):.2f}×"


def _shown(row: dict[str, str]) -> str:
    return f"{float(row['rmse']):.4f} ({float(row['frechet']):.3g})"


def main(names: list[str]) -> None:
    """Measure these models, and write all rows and the page."""
    path = OUT / "results.csv"
    held = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    by_model: dict[str, list[dict[str, Any]]] = {name: [row for row in held if row["model"] == name] for name in MODELS}
    for name in names:
        known = {(row["solver"], row["steps"]): row["schedule"] for row in by_model[name] if row["solver"] in RIVALS}
        by_model[name] = [{key: str(value) for key, value in asdict(row).items()} for row in rows_of(name, known)]
        rows = [row for own in by_model.values() for row in own]
        write_text(path, as_csv(rows))
        write_text(OUT / "README.md", page(rows))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:] or list(MODELS))
