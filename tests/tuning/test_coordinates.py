from __future__ import annotations

import numpy as np
import torch

from geosprint.noise import DiscreteVP
from geosprint.teacher import TeacherTrajectories
from geosprint.tuning.surrogate import Coordinates


def walks_that_end_at(ends):
    """Everything else is random."""
    drawn = torch.Generator().manual_seed(1)
    x0, eps = (torch.randn(4, *ends.shape, generator=drawn) for _ in range(2))
    starts = torch.randn(ends.shape, generator=drawn)
    return TeacherTrajectories(
        DiscreteVP.named(), tuple(range(len(ends))), np.array([999.0, 600, 300, 0]), x0, eps, starts, ends
    )


def drawn_ends(count, dimensions):
    scale = torch.linspace(2, 0.1, dimensions)
    return torch.randn(count, dimensions, generator=torch.Generator().manual_seed(0)) * scale


def test_all_coordinates_of_few_dimensions_keep_every_distance():
    walks = walks_that_end_at(drawn_ends(9, 30))
    coordinates = Coordinates.of(walks, 256)
    assert coordinates.basis.shape == (30, 30)
    samples = torch.randn(6, 5, 6, generator=torch.Generator().manual_seed(3))
    projected = coordinates.of_samples(samples)
    flat = samples.flatten(1)
    assert torch.allclose(torch.cdist(projected, projected), torch.cdist(flat, flat), atol=1e-4)
    assert torch.allclose(coordinates.samples_at(projected), samples.flatten(1), atol=1e-5)


def test_the_first_coordinates_are_the_principal_axes_of_the_ends():
    ends = drawn_ends(12, 20)
    coordinates = Coordinates.of(walks_that_end_at(ends), 256)
    values = np.linalg.eigvalsh(np.cov(ends.double().numpy().T))[::-1]
    assert len(coordinates.data.variances) == 11
    assert np.allclose(coordinates.data.variances, values[:11], rtol=1e-5)
    projected = coordinates.of_samples(ends)
    assert np.allclose(projected.var(dim=0)[:11], values[:11], rtol=1e-4)


def test_a_few_coordinates_of_many_dimensions_keep_sizes_in_the_mean():
    coordinates = Coordinates.of(walks_that_end_at(drawn_ends(20, 5000)), 256)
    assert coordinates.basis.shape == (256, 5000)
    samples = torch.randn(50, 5000, generator=torch.Generator().manual_seed(4))
    ratio = coordinates.of_samples(samples).norm(dim=1) / samples.norm(dim=1)
    assert abs(float(ratio.mean()) - 1) < 0.03
    assert float((ratio - 1).abs().max()) < 0.2


def test_projected_trajectories_are_the_trajectories_of_projected_states():
    walks = walks_that_end_at(drawn_ends(5, 400))
    coordinates = Coordinates.of(walks, 256)
    projected = coordinates.of_trajectories(walks)
    for t in (999.0, 450.0, 12.0):
        assert torch.allclose(projected.state_at(t), coordinates.of_samples(walks.state_at(t)), atol=1e-4)
    assert torch.allclose(projected.ends, coordinates.of_samples(walks.ends))
    assert torch.allclose(projected.starts, coordinates.of_samples(walks.starts))


def test_the_same_walks_give_the_same_coordinates():
    walks = walks_that_end_at(drawn_ends(5, 400))
    assert torch.equal(Coordinates.of(walks, 256).basis, Coordinates.of(walks, 256).basis)


def test_ends_that_are_all_alike_leave_no_axis_but_still_have_coordinates():
    coordinates = Coordinates.of(walks_that_end_at(torch.ones(4, 6)), 256)
    samples = torch.randn(3, 6, generator=torch.Generator().manual_seed(5))
    assert torch.allclose(coordinates.of_samples(samples).norm(dim=1), samples.norm(dim=1), atol=1e-5)
