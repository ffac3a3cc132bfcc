"""Least squares in which walks count by distance, not by its square."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from geosprint.fitting.stepwise import distance_weights, fit_by_distance, ridge_regression


def problem(seed=0, numbers=3, walks=12, dimensions=7):
    random = torch.Generator().manual_seed(seed)
    directions = torch.randn(numbers, walks, dimensions, generator=random, dtype=torch.float64)
    return directions, torch.randn(walks, dimensions, generator=random, dtype=torch.float64)


def test_without_ridge_and_with_equal_weights_it_is_numpys_least_squares():
    directions, missing = problem()
    expected = np.linalg.lstsq(directions.reshape(3, -1).numpy().T, missing.flatten().numpy(), rcond=None)[0]
    np.testing.assert_allclose(ridge_regression(directions, missing, torch.ones(12), 0.0), expected, rtol=1e-10)


def test_weights_count_walks_as_often_as_they_say():
    directions, missing = problem()
    weights = torch.tensor([2.0, *[1.0] * 10, 0.0])
    again = torch.tensor([0, 0, *range(1, 11)])
    twice = ridge_regression(directions[:, again], missing[again], torch.ones(12), 0.0)
    np.testing.assert_allclose(ridge_regression(directions, missing, weights, 0.0), twice, rtol=1e-10)


def test_the_ridge_is_that_of_directions_of_length_one():
    directions, missing = problem()
    lengths = directions.reshape(3, -1).norm(dim=1)
    a, b = (directions / lengths[:, None, None]).reshape(3, -1).numpy(), missing.flatten().numpy()
    expected = np.linalg.solve(a @ a.T + 0.3 * np.eye(3), a @ b) / lengths.numpy()
    np.testing.assert_allclose(ridge_regression(directions, missing, torch.ones(12), 0.3), expected, rtol=1e-10)
    scaled = directions * torch.tensor([100.0, 1.0, 0.01], dtype=torch.float64)[:, None, None]
    units = ridge_regression(scaled, missing, torch.ones(12), 0.3) * np.array([100, 1, 0.01])
    np.testing.assert_allclose(units, expected, rtol=1e-9)


def test_a_direction_of_nothing_gets_nothing():
    directions, missing = problem()
    directions[1] = 0
    assert ridge_regression(directions, missing, torch.ones(12), 1e-6)[1] == 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fit_makes_the_mean_distance_small_as_a_general_minimiser_does(seed):
    directions, missing = problem(seed)
    missing[0] *= 40  # one walk went elsewhere

    def distance(numbers):
        left = missing - torch.einsum("f,fwd->wd", torch.from_numpy(numbers), directions)
        return float(left.norm(dim=1).mean())

    found = fit_by_distance(directions, missing, ridge=0.0, reweightings=6)
    best = minimize(distance, found, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}).fun
    squares = ridge_regression(directions, missing, torch.ones(12), 0.0)
    assert distance(found) == pytest.approx(best, rel=2e-3)
    assert distance(found) < 0.98 * distance(squares)


def test_walks_that_fit_already_weigh_alike():
    assert distance_weights(torch.zeros(4, 3)).tolist() == [1, 1, 1, 1]
    weights = distance_weights(torch.tensor([[3.0, 4.0], [0.0, 10.0], [0.0, 0.0]]))
    assert float(weights[0] / weights[1]) == pytest.approx(2)
    assert float(weights[2] / weights[0]) == pytest.approx(5 / (1e-3 * 5))  # no nearer than a thousandth of the mean
    assert float(weights.mean()) == pytest.approx(1)
