from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from geosprint.errors import ScheduleError
from geosprint.rivals.dynamic_programs import cheapest_path


def price_of(path, cost, decay):
    """c[p0, p1] + decay·(c[p1, p2] + decay·(...)), term by term; the last step goes to the last point."""
    stops = [*path, len(cost) - 1]
    return sum(decay**k * cost[i, j] for k, (i, j) in enumerate(pairwise(stops)))


def cheapest_of_all(cost, steps, decay, start_cost=None):
    """Every path written out; without start costs it must begin at 0."""
    last = len(cost) - 1
    paths = [p for p in combinations(range(last), steps) if start_cost is not None or p[0] == 0]
    extra = np.zeros(last + 1) if start_cost is None else start_cost
    return min(paths, key=lambda p: extra[p[0]] + price_of(p, cost, decay))


def test_the_path_of_a_hand_example():
    # 0 -> 3 in two steps: by 1 it costs 1 + 7, by 2 it costs 4 + 2.
    cost = np.array([[0, 1, 4, 9], [0, 0, 5, 7], [0, 0, 0, 2], [0, 0, 0, 0]])
    assert cheapest_path(cost, 1).tolist() == [0]
    assert cheapest_path(cost, 2).tolist() == [0, 2]
    assert cheapest_path(cost, 3).tolist() == [0, 1, 2]


def test_decay_weighs_the_later_steps():
    # By 1: 1 + d·7; by 2: 4 + d·2. They are equal at d = 0.6.
    cost = np.array([[0, 1, 4, 9], [0, 0, 5, 7], [0, 0, 0, 2], [0, 0, 0, 0]])
    assert cheapest_path(cost, 2, decay=0.59).tolist() == [0, 1]
    assert cheapest_path(cost, 2, decay=0.61).tolist() == [0, 2]


@pytest.mark.parametrize("decay", [1.0, 0.7, 1.15, 2.0])
@pytest.mark.parametrize("free_start", [False, True], ids=["from the first point", "from any point"])
@pytest.mark.parametrize("seed", range(6))
def test_every_path_is_the_cheapest_of_all_paths(seed, free_start, decay):
    random = np.random.default_rng(seed)
    last = 8
    # Long steps cost more, so that the choice is not simply the shortest or the longest.
    gaps = np.abs(np.subtract.outer(np.arange(last + 1), np.arange(last + 1)))
    cost = random.uniform(size=(last + 1, last + 1)) * gaps**1.5
    start_cost = random.uniform(0, 6, size=last + 1) if free_start else None
    for steps in range(1, last + 1):
        assert tuple(cheapest_path(cost, steps, decay, start_cost)) == cheapest_of_all(cost, steps, decay, start_cost)


def test_a_free_start_is_paid_for_once_and_taken_only_where_it_saves():
    cost = np.array([[0, 1, 5, 9], [0, 0, 1, 5], [0, 0, 0, 1], [0, 0, 0, 0.0]])
    assert cheapest_path(cost, 1, start_cost=[0, 3.9, 9, 99]).tolist() == [1]  # 8.9 instead of 9
    assert cheapest_path(cost, 1, start_cost=[0, 4.1, 9, 99]).tolist() == [0]
    assert cheapest_path(cost, 2, start_cost=[0, 3.9, 9, 99]).tolist() == [1, 2]  # 5.9; from 0 it is 6
    assert cheapest_path(cost, 2, start_cost=[0, 4.1, 9, 99]).tolist() == [0, 1]  # 1 + 5 or 5 + 1: the earlier


def test_of_equal_paths_the_earliest_points_are_taken():
    for steps in range(1, 6):
        assert cheapest_path(np.ones((6, 6)), steps).tolist() == list(range(steps))


def test_steps_backwards_and_standing_still_are_never_taken():
    cost = np.random.default_rng(0).uniform(1, 2, size=(7, 7))
    tempting = cost.copy()
    tempting[np.tril_indices(7)] = -100
    missing = cost.copy()
    missing[np.tril_indices(7)] = np.nan
    for steps in range(1, 7):
        expected = cheapest_path(cost, steps).tolist()
        assert cheapest_path(tempting, steps).tolist() == expected
        assert cheapest_path(missing, steps).tolist() == expected


@pytest.mark.parametrize("steps", [0, 6, -1])
def test_a_number_of_steps_that_no_path_has_is_refused(steps):
    with pytest.raises(ScheduleError, match=r"6 points has 1\.\.5 steps"):
        cheapest_path(np.ones((6, 6)), steps)


def test_costs_that_say_nothing_are_refused():
    with pytest.raises(ScheduleError, match="square"):
        cheapest_path(np.ones((3, 4)), 1)
    with pytest.raises(ScheduleError, match="finite"):
        cheapest_path(np.full((3, 3), np.nan), 1)
    with pytest.raises(ScheduleError, match="one price for each of 3 points"):
        cheapest_path(np.ones((3, 3)), 1, start_cost=[1, 2])
