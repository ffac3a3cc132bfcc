from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from geosprint.models.exact import ring
from geosprint.rivals.dynamic_programs import one_step_errors
from geosprint.rivals.weighted_path import cheapest_weighted_path, start_distances
from geosprint.sampling import record


@pytest.fixture(scope="module")
def recorded():
    return record(ring(), range(5), 11, predictions=True)


def test_distances_from_the_noise_are_root_mean_squares(recorded):
    states = recorded.states.double().numpy()
    expected = [[np.sqrt(np.mean((one[j] - one[0]) ** 2)) for j in range(12)] for one in states]
    assert np.allclose(start_distances(recorded), expected, atol=1e-6)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("steps", [2, 3])
def test_no_other_path_is_cheaper(recorded, power, steps):
    left = np.linspace(3, 0.5, 12)
    cost, start = one_step_errors(recorded), start_distances(recorded)

    def price(path):
        legs = zip(path, [*path[1:], 11], strict=True)
        made = sum(np.mean((cost[:, i, j] * left[j]) ** power) for i, j in legs)
        return made + np.mean((start[:, path[0]] * left[path[0]]) ** power)

    best = min(combinations(range(11), steps), key=price)
    assert cheapest_weighted_path(recorded, left, steps, power).tolist() == recorded.timesteps[list(best)].tolist()
