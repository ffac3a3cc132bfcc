"""EDM networks: the published formulas, in EDM's own coordinates, and every verb on one."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.cli import app
from geosprint.models.base import predict

NOISE = geosprint.EDM()
MEAN, SPREAD = torch.tensor([0.4, -0.7, 0.1]), torch.tensor([0.9, 0.3, 0.5])
SEEDS = [3, 4]


def denoised(x, sigma):
    """The exact denoiser of normal data, at x = x0 + sigma·eps."""
    return MEAN + SPREAD**2 / (SPREAD**2 + sigma**2) * (x - MEAN)


def inside(x, c_noise):
    """The network that EDM's preconditioning turns into this denoiser (Table 1)."""
    sigma, data = math.exp(4 * c_noise), NOISE.sigma_data
    x = x * math.sqrt(sigma**2 + data**2)
    c_skip, c_out = data**2 / (sigma**2 + data**2), sigma * data / math.sqrt(sigma**2 + data**2)
    return (denoised(x, sigma) - c_skip * x) / c_out


def model(preconditioned=True):
    network = denoised if preconditioned else inside
    return geosprint.Network(NOISE.denoiser(network, preconditioned), (3,), NOISE, "x0", name="edm")


def published_sigmas(steps, rho=7):
    """Karras et al. (2022), Eq. 5."""
    i = np.arange(steps)
    low, high = NOISE.sigma_min ** (1 / rho), NOISE.sigma_max ** (1 / rho)
    return (high + i / (steps - 1) * (low - high)) ** rho


@pytest.mark.parametrize("name", ["karras", "uniform-linspace"])
def test_uniform_steps_and_karras_are_the_published_grid(name):
    found = baseline_schedule(name, NOISE, 18)
    np.testing.assert_allclose(found.sigmas[:-1], published_sigmas(18), rtol=1e-6)


@pytest.mark.parametrize("preconditioned", [True, False])
def test_a_network_is_asked_in_its_own_coordinates(preconditioned):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    for t in (1.0, 0.6, 0.2, NOISE.last):
        sigma = float(NOISE.sigma(t))
        found = predict(model(preconditioned), x / math.hypot(1, sigma), t)
        torch.testing.assert_close(found.x0, denoised(x, sigma), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(found.x0 + sigma * found.eps, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("solver", ["ddim", "heun"])
def test_sampling_is_that_of_the_paper_in_its_own_coordinates(solver):
    """Algorithm 1 of Karras et al. without churn: Euler is ddim here."""
    schedule = baseline_schedule("karras", NOISE, 12)
    sigmas = [*schedule.sigmas[:-1], 0.0]
    noise = torch.stack([torch.randn(3, generator=torch.Generator().manual_seed(seed)) for seed in SEEDS]).double()
    x = noise * math.hypot(1, sigmas[0])  # ours begins with unit variance
    for now, then in pairwise(sigmas):
        slope = (x - denoised(x, now)) / now
        landing = x + (then - now) * slope
        if solver == "heun" and then > 0:
            slope = (slope + (landing - denoised(landing, then)) / then) / 2
        x = x + (then - now) * slope
    torch.testing.assert_close(geosprint.sample(model(), schedule, SEEDS, solver).double(), x, rtol=1e-4, atol=1e-4)


def test_the_end_of_a_fine_solve_is_the_exact_solution():
    """Of the probability flow of normal data: distances to the mean shrink as the deviation does."""
    found = geosprint.sample(model(), baseline_schedule("karras", NOISE, 400), SEEDS, "heun").double()
    top = NOISE.sigma_max
    noise = torch.stack([torch.randn(3, generator=torch.Generator().manual_seed(seed)) for seed in SEEDS]).double()
    start = noise * math.hypot(1, top)
    exact = MEAN + (start - MEAN) * SPREAD / torch.sqrt(SPREAD**2 + top**2)
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-3)


def test_every_verb_takes_one(tmp_path, monkeypatch):
    (tmp_path / "own_edm.py").write_text(
        "import torch, geosprint\n"
        "def make():\n"
        "    noise = geosprint.EDM()\n"
        "    spread = torch.tensor([0.9, 0.3, 0.5, 0.7])\n"
        "    d = noise.denoiser(lambda x, sigma: spread**2 / (spread**2 + sigma**2) * x)\n"
        "    return geosprint.Network(d, (4,), noise, 'x0', name='own-edm')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for line in (
        "extract own_edm:make --trajectories 6 --reference-steps 40 -o profile.json",
        "schedule profile.json --steps 6 -o schedule.json",
        "sample own_edm:make --schedule schedule.json -n 4 -o samples.safetensors",
        "tune own_edm:make --steps 5 --budget-nfe 4000 -o tuned.json",
        "fit own_edm:make --steps 5 --budget-nfe 4000 -o fitted.json",
        "sample own_edm:make --schedule fitted.json -n 4 -o fitted.safetensors",
        "compare own_edm:make --quick --steps 5 --methods karras,geosprint,gits,sdm -n 16 --trajectories 6 "
        "--reference-steps 40 -o compared",
        "export schedule.json --to comfyui",
    ):
        ran = CliRunner().invoke(app, line.split())
        assert ran.exit_code == 0, (line, ran.output, ran.exception)
    again = geosprint.Tuned.load("fitted.json")
    assert again.made_for["noise"] == {"kind": "edm", "sigma_min": 0.002, "sigma_max": 80.0, "sigma_data": 0.5}
    errors = again.result().errors
    assert errors["this"].mean() < 0.2
