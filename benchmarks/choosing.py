"""By which mean should a search choose? On half of the samples of `geosprint compare`, and judged on the other half.

python -m benchmarks.choosing DIR    reads the cells that `geosprint compare` left in DIR/MODEL
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from benchmarks.quality import LIMIT, OURS

Array = NDArray[np.float64]

SPLITS = 400
NEAR = 1.5  # times the least error: schedules with a higher one are easily told apart
WAYS: dict[str, Callable[[Array], Array]] = {
    "mean": lambda errors: errors.mean(axis=1),
    "square of the mean root": lambda errors: np.sqrt(errors).mean(axis=1) ** 2,
    "geometric mean": lambda errors: np.exp(np.log(errors).mean(axis=1)),
    "median": lambda errors: np.median(errors, axis=1),
}


def places(directory: Path) -> dict[str, Array]:
    """Errors (schedules, samples) of the rivals that are near the best, by solver and steps."""
    found: dict[str, list[Array]] = defaultdict(list)
    for path in sorted(directory.glob("cells/*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            about = json.loads(file.metadata()["geosprint"])
            if "method" in about and about["method"] not in (*OURS, LIMIT):
                found[f"{directory.name} {about['solver']} {about['steps']}"].append(file.get_tensor("errors"))
    stacked = {place: np.stack(errors) for place, errors in found.items()}
    return {place: errors[errors.mean(axis=1) < NEAR * errors.mean(axis=1).min()] for place, errors in stacked.items()}


def judged(errors: Array, random: np.random.Generator) -> dict[str, float]:
    """Mean error, on the other half, of what each way chooses on one half."""
    found: dict[str, list[float]] = defaultdict(list)
    half = errors.shape[1] // 2
    for _ in range(SPLITS):
        mixed = errors[:, random.permutation(errors.shape[1])]
        others = mixed[:, half:].mean(axis=1)
        for name, way in WAYS.items():
            found[name].append(float(others[way(mixed[:, :half]).argmin()]))
    return {name: float(np.mean(of_splits)) for name, of_splits in found.items()}


def table(directory: Path) -> str:
    """Every way over the mean, for each place and over all."""
    random = np.random.default_rng(0)
    rows = {
        place: judged(errors, random)
        for one in sorted(directory.iterdir())
        for place, errors in places(one).items()
        if len(errors) > 1
    }
    over = {place: {name: row[name] / row["mean"] for name in WAYS} for place, row in rows.items()}
    lines = [f"{place:28}" + "".join(f"  {name} {row[name]:.3f}" for name in WAYS) for place, row in over.items()]
    means = {name: np.exp(np.mean([np.log(row[name]) for row in over.values()])) for name in WAYS}
    return "\n".join([*lines, "all" + " " * 25 + "".join(f"  {name} {mean:.4f}" for name, mean in means.items())])


if __name__ == "__main__":
    print(table(Path(sys.argv[1])))
