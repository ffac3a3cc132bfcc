from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from geosprint.models.base import Prediction, predict
from geosprint.models.exact import digits
from geosprint.rivals.weighted_path import sensitivities
from geosprint.sampling import record
from geosprint.trajectory import Trajectories


@dataclass
class Seen:
    """Recorded trajectories, and whatever predicts."""

    recorded: Trajectories
    predict: Any

    def predictor(self, rows):
        return self.predict


def recorded_digits() -> Trajectories:
    return record(digits(), range(4), 40, predictions=True)


def test_a_model_that_ignores_its_state_forgets_every_error():
    recorded = recorded_digits()
    noise = recorded.origin.noise

    def predicts_zero(x, t):
        return Prediction(torch.zeros_like(x), x / noise.signal_and_sigma(t)[1])

    left = sensitivities(Seen(recorded, predicts_zero), gap=5)
    assert np.allclose(left[1:-1], 0, atol=1e-6)
    assert left[-1] == 1


def test_a_model_that_takes_its_state_for_clean_keeps_every_error_and_undoes_the_shrinking():
    recorded = recorded_digits()
    noise = recorded.origin.noise

    def takes_it_for_clean(x, t):
        return Prediction(x / noise.signal_and_sigma(t)[0], torch.zeros_like(x))

    left = sensitivities(Seen(recorded, takes_it_for_clean), gap=5)
    for j in (5, 39):  # the first and the last point that is measured
        assert np.isclose(left[j], 1 / noise.signal_and_sigma(recorded.timesteps[j])[0], rtol=1e-3)


def test_an_error_is_followed_to_the_end_in_as_many_steps_as_are_due():
    recorded, model = recorded_digits(), digits()
    noise, times = model.noise, recorded.timesteps
    left = sensitivities(Seen(recorded, partial(predict, model)), gap=4)
    assert left.shape == (41,)
    j, i = 39, 35  # from the last recorded time one step leads to the end, where x0 is all there is
    a, s = noise.signal_and_sigma(times[j])
    states = recorded.states[:, j]
    off = a * recorded.x0[:, i] + s * recorded.eps[:, i]
    ends = [predict(model, x.reshape(4, *model.shape), times[j]).x0.flatten(1) for x in (off, states)]
    expected = (ends[0] - ends[1]).norm(dim=1).mean() / (off - states).norm(dim=1).mean()
    assert np.isclose(left[j], float(expected), rtol=1e-4)


def test_a_gap_of_one_recorded_step_is_widened_since_it_would_make_no_error():
    recorded, model = recorded_digits(), digits()
    narrow, wide = (sensitivities(Seen(recorded, partial(predict, model)), gap) for gap in (1, 2))
    assert np.array_equal(narrow, wide)
