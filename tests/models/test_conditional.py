"""Guided models that tell the conditional prediction, too, through everything that stands around a model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from geosprint import load_model
from geosprint.call_cache import Cached
from geosprint.errors import ModelError
from geosprint.models.base import Network, predict
from geosprint.models.spread import Counted, Spread
from geosprint.models.wrappers import Shown, check_model
from geosprint.noise import DiscreteVP
from geosprint.runs.team import joined_team
from runs.processes import ended, team_of

NOISE = DiscreteVP.named()
STATES = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, eq=False)
class Guided(Network):
    """Predicts the clean sample: unconditionally x / 2, conditionally x / 4 + 1, with guidance 3."""

    both: bool = False

    def with_conditional(self):
        return replace(self, both=True)

    def __call__(self, x, t):
        free, conditional = x / 2, x / 4 + 1
        guided = free + 3 * (conditional - free)
        return torch.stack([guided, conditional], dim=1) if self.both else guided


def guided(clip=None):
    return Guided(lambda x, t: x, (3,), NOISE, "x0", clip, calls=2, name="guided")


class Kept(dict):
    """Pages of a cache in memory."""

    find, write = dict.get, dict.__setitem__


class Bar:
    def update(self, calls):
        pass


@pytest.mark.parametrize("clip", [None, 0.8])
def test_what_guidance_adds_is_the_guided_x0_less_the_conditional_one(clip):
    found = predict(guided(clip).with_conditional(), STATES, 400.0)
    assert predict(guided(clip), STATES, 400.0).added is None
    bound = torch.inf if clip is None else clip
    conditional, whole = (STATES / 4 + 1).clamp(-bound, bound), (3 - STATES / 4).clamp(-bound, bound)
    torch.testing.assert_close(found.x0, whole)
    torch.testing.assert_close(found.added, whole - conditional)


def test_every_wrapper_hands_it_on_and_calls_are_counted_once():
    kept = Kept()
    model = Spread(Cached(Shown(Counted(guided()), Bar()), kept), batch=2)
    both = model.with_conditional()
    torch.testing.assert_close(both(STATES, 400.0), guided().with_conditional()(STATES, 400.0))
    torch.testing.assert_close(model(STATES, 400.0), guided()(STATES, 400.0))  # another answer to the same states
    assert len(kept) == 10  # batches of 1: as many processes would have work
    assert model.nfe == both.nfe == 20
    again = both.for_samples([7, 8])
    assert again(STATES[:2], 400.0).shape == (2, 2, 3)


def test_a_model_that_does_not_tell_stays_as_it_is():
    plain = Spread(Counted(Network(lambda x, t: x, (3,), NOISE)))
    assert plain.with_conditional() is plain

    class Bare:
        name, shape, noise, prediction, clip, calls, device = "bare", (3,), NOISE, "x0", None, 1, torch.device("cpu")

        def __call__(self, x, t):
            return x

    completed = check_model(Bare(), "a Bare")
    assert completed.with_conditional() is completed


@pytest.mark.parametrize("size", [2, 3])
def test_processes_exchange_both_answers(size):
    expected = guided().with_conditional()(STATES, 400.0)

    def work():
        with joined_team():
            assert torch.equal(Spread(guided(), batch=2).with_conditional()(STATES, 400.0), expected)

    assert [ended(child) for child in team_of(size, work)] == [0] * size


def test_a_network_of_the_box_tells_what_it_would_say_without_guidance():
    model, alone = load_model("fashion", 3, 2.5), load_model("fashion", 3)
    x = torch.randn(2, *model.shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole, conditional = model.with_conditional()(x, 300.0).unbind(1)
        torch.testing.assert_close(whole, model(x, 300.0))
        torch.testing.assert_close(conditional, alone(x, 300.0), atol=1e-5, rtol=0)
        assert (whole - conditional).abs().max() > 1e-2
        same = alone.with_conditional()(x, 300.0)
        torch.testing.assert_close(same[:, 0], same[:, 1])  # without guidance nothing is added


def test_three_answers_to_a_sample_are_refused():
    model = Network(lambda x, t: torch.stack([x, x, x], dim=1), (3,), NOISE, name="three")
    with pytest.raises(ModelError, match=r"'three' was given \(5, 3\) at t = 400 and must return the same shape"):
        predict(model, STATES, 400.0)
