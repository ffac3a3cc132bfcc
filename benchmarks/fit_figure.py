"""The figure of docs/fit.md: `python -m benchmarks.fit_figure`."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import torch

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.fitted_solver import known_coefficients
from geosprint.models.exact import ring
from geosprint.noise import CLEAN
from geosprint.sampling import seeded_walk
from geosprint.solvers import solver_named
from geosprint.teacher import fine_timesteps

OUT = Path(__file__).parent.parent / "docs" / "fit.png"
STEPS = 5
SEED = 10_000_003


def path(model, times, solver):
    """The states of one walk over their signal and noise: without bends where eps stays what it is."""
    found = []
    for state in seeded_walk(model, times, [SEED], solver_named(solver)):
        a, s = model.noise.signal_and_sigma(state.t) if state.t != CLEAN else (1.0, 0.0)
        found.append(state.x[0] / (a + s))
    return torch.stack(found)


def main():
    model = ring()
    fitted = geosprint.fit(model, STEPS)[STEPS]
    times = fitted.schedule.timesteps
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), constrained_layout=True)
    fine = path(model, fine_timesteps(model.noise, 300), "heun")
    left.plot(*fine.T, color="0.6", linewidth=4, label="fine solve")
    for name, solver, colour in (("DDIM", "ddim", "tab:red"), ("DPM++ 2M", "dpmpp-2m", "tab:orange")):
        left.plot(*path(model, times, solver).T, ".-", color=colour, label=name)
    left.plot(*path(model, times, fitted).T, ".-", color="tab:blue", label="fitted")
    left.set_title(f"One walk of {STEPS} steps on the ring of Gaussians")
    left.legend(frameon=False)
    left.set_aspect("equal", adjustable="datalim")
    digits = geosprint.load_model("digits")
    steps = geosprint.fit(digits, 10, baseline_schedule("quadratic", digits.noise, 10))[10]
    known = known_coefficients("dpmpp-2m", digits.noise, steps.schedule.timesteps, 4)
    for name, numbers, colour in (("DPM++ 2M", known, "tab:orange"), ("fitted", steps.coefficients, "tab:blue")):
        right.plot(range(2, 11), [own[2] for own in numbers[1:]], "o-", color=colour, label=f"{name}, one step ago")
        older = [own[3] for own in numbers[2:]]
        right.plot(range(3, 11), older, "o--", color=colour, alpha=0.5, label=f"{name}, two steps ago")
    right.axhline(0, color="tab:red", label="DDIM looks at none")
    right.set_xlabel("step")
    right.set_title("How much a step counts earlier predictions (digits, K = 10)")
    right.legend(frameon=False)
    figure.savefig(OUT, dpi=90)
    print(OUT)


if __name__ == "__main__":
    main()
