"""Train a small network of your own, and measure which schedule is best for it.

python examples/measure_your_model.py OUT

Everything between the two lines of dashes is what your own model needs; the rest is the measurement.
"""

import math
import sys
from pathlib import Path

import torch

import geosprint

METHODS = ("uniform-trailing", "quadratic", "karras", "beta", "kl-optimal", "gits", "geosprint")
NOISE = geosprint.DiscreteVP.named("linear")


# ---------------------------------------------------------------------------------------------------------------------
def network() -> torch.nn.Module:
    """It sees a point in the plane and the time, and says which noise was added."""
    return torch.nn.Sequential(
        torch.nn.Linear(4, 128), torch.nn.SiLU(), torch.nn.Linear(128, 128), torch.nn.SiLU(), torch.nn.Linear(128, 2)
    )


def predict(net: torch.nn.Module, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The time is told as an angle, which networks read more easily than a number up to 999."""
    angle = t[:, None] / 1000 * math.pi
    return net(torch.cat([x, angle.sin(), angle.cos()], dim=1))


def train(steps: int = 2000) -> torch.nn.Module:
    """Points on a circle, ordinary noise prediction."""
    torch.manual_seed(0)
    net = network()
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
    kept = torch.as_tensor(NOISE.alphas_cumprod, dtype=torch.float32)
    for _ in range(steps):
        angle = torch.rand(256) * 2 * math.pi
        clean, eps = torch.stack([angle.cos(), angle.sin()], dim=1), torch.randn(256, 2)
        t = torch.randint(len(kept), (256,))
        a, s = kept[t].sqrt()[:, None], (1 - kept[t]).sqrt()[:, None]
        loss = (predict(net, a * clean + s * eps, t) - eps).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return net.eval()


def as_model(net: torch.nn.Module) -> geosprint.Network:
    """The network as a model of geosprint: what it takes, what it predicts, and its noise schedule."""
    return geosprint.Network(
        lambda x, t: predict(net, x, torch.full((len(x),), float(t))), shape=(2,), noise=NOISE, name="circle"
    )


# ---------------------------------------------------------------------------------------------------------------------


def measure(model: geosprint.Network, out: Path, samples: int = 128) -> None:
    """Some schedules and two solvers side by side, eight steps each."""
    plan = geosprint.Plan(steps=(8,), solvers=("ddim", "dpmpp-2m"), methods=METHODS, samples=samples)
    found = geosprint.compare(model, out, plan)
    for solver in plan.solvers:
        best = found.best(solver, 8)
        print(f"8 steps of {solver}: {best.method} is nearest, RMSE {best.errors.mean():.4f}")


if __name__ == "__main__":
    measure(as_model(train()), Path(sys.argv[1]))
