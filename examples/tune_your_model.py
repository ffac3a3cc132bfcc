"""Train a small network of your own, and find the fewest steps that are as good as fifty.

python examples/tune_your_model.py OUT

Replace the code between the two dashed lines with your own model; the rest tunes it, and measures published schedules.
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
    """A small MLP that predicts the noise from a point in the plane and the time."""
    return torch.nn.Sequential(
        torch.nn.Linear(4, 128), torch.nn.SiLU(), torch.nn.Linear(128, 128), torch.nn.SiLU(), torch.nn.Linear(128, 2)
    )


def predict(net: torch.nn.Module, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
    """The time is embedded as an angle, which networks learn from more easily than from a number up to 999."""
    angle = t[:, None] / 1000 * math.pi
    return net(torch.cat([x, angle.sin(), angle.cos()], dim=1))


def train(steps: int = 2000) -> torch.nn.Module:
    """Noise prediction on points of a circle."""
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


def wrapped(net: torch.nn.Module) -> geosprint.Network:
    """The network as a geosprint model: its input shape, its prediction and its noise schedule."""
    return geosprint.Network(
        lambda x, t: predict(net, x, torch.full((len(x),), float(t))), shape=(2,), noise=NOISE, name="circle"
    )


# ---------------------------------------------------------------------------------------------------------------------


def tune_and_compare(model: geosprint.Network, out: Path, budget_nfe: int = 20_000, samples: int = 128) -> None:
    """Tune, and measure published schedules with as many steps."""
    tuned = geosprint.tune(model, budget_nfe=budget_nfe)
    tuned.save(out / "tuned.json")
    few = tuned.steps[0]
    print(f"{few} tuned steps instead of {tuned.today}: error {tuned.result(few).error()}")
    found = geosprint.compare(model, out, steps=few, methods=METHODS, samples=samples)
    best = found.winner("ddim", few)
    print(f"{few} ddim steps of {best.method}, the best of the others: error {best.error:.4f}")


if __name__ == "__main__":
    tune_and_compare(wrapped(train()), Path(sys.argv[1]))
