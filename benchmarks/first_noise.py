"""What the first noise of a client is worth: tuned steps that begin late, on exact models, by four ways to begin.

python -m benchmarks.first_noise

Ours and diffusers' first state is unit noise at any time. ComfyUI, A1111 and stable-diffusion.cpp multiply it by sigma.
An exporter could instead begin at the highest sigma: raise the first one, or put one more step before it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

import geosprint
from geosprint.baselines import reference_timesteps
from geosprint.models.base import Model
from geosprint.noise import DiscreteVP, Flow
from geosprint.sampling import SeededNoise, walk
from geosprint.solvers import refuse_to_draw, solver_named

SEEDS = range(8_000_000, 8_000_064)  # neither tuned on nor judged by anywhere else


@torch.no_grad()
def main() -> None:
    """A line for each model, noise schedule, solver and number of steps whose tuned steps begin late."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--models", default="gaussian,digits")
    asked.add_argument("--steps", default="4,8")
    asked.add_argument("--budget-nfe", type=int, default=8000)
    asked = asked.parse_args()
    steps = tuple(map(int, asked.steps.split(",")))
    print("model     noise           K  solver               begins at   lacks    unit  sigma  raised  one more")
    for name in asked.models.split(","):
        for noise in (Flow(), Flow(3.0), DiscreteVP.named("scaled_linear")):
            model = replace(geosprint.load_model(name), noise=noise)
            for solver in ("euler", "dpmpp-2m-kdiffusion") if isinstance(noise, Flow) else ("ddim", "dpmpp-2m"):
                tuned = geosprint.tune(model, steps, solver=solver, budget_nfe=asked.budget_nfe, progress=False)
                for one in tuned.results:
                    times = one.schedule.timesteps.tolist()
                    if times[0] < noise.first:
                        about = (
                            f"{name:<9} {noise.kind:<11} {getattr(noise, 'shift', ''):>3} {one.steps:>2}  {solver:<20}"
                        )
                        print(about, _compared(model, times, solver), flush=True)


def _compared(model: Model, times: list[float], solver: str) -> str:
    """Errors of the same steps from unit noise, from sigma times noise, and with two other beginnings."""
    first = model.noise.first
    share = model.noise.signal_and_sigma(times[0])[1]  # of noise in the state: what is left of a unit
    noise = SeededNoise(SEEDS, model.shape, model.device).draw()
    fine = _end(model, noise, reference_timesteps(model.noise, 400), "dpmpp-2m")

    def error(x: Tensor, times: Sequence[float]) -> float:
        return float((_end(model, x, times, solver) - fine).square().flatten(1).mean(dim=1).sqrt().mean())

    ways = (
        error(noise, times),
        error(share * noise, times),
        error(noise, [first, *times[1:]]),
        error(noise, [first, *times]),
    )
    return f"{times[0]:9.1f}  {1 / share:6.3f}   " + "  ".join(f"{way:.4f}" for way in ways)


def _end(model: Model, x: Tensor, times: Sequence[float], solver: str) -> Tensor:
    *_, last = walk(model, x, times, solver_named(solver), refuse_to_draw)
    return last.x


if __name__ == "__main__":
    main()
