"""Batches begin at the same samples and have the same bits, however many processes answer them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import pytest
import torch
from processes import ended, noting_what_is_sent, team_of

from geosprint.errors import ModelFailed, TeamError
from geosprint.models.base import Network
from geosprint.models.exact import ring
from geosprint.models.spread import Spread, shared_size
from geosprint.models.wrappers import Wrapped
from geosprint.noise import DiscreteVP
from geosprint.runs import BATCH
from geosprint.runs.team import joined_team

STATES = torch.randn(35, 2, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, eq=False)
class Watched(Wrapped):
    """Notes which samples it was asked about."""

    asked: list = field(default_factory=list)
    rows: tuple = ()

    def for_samples(self, rows):
        return Watched(self.inner, self.asked, tuple(rows))

    def __call__(self, x, t):
        self.asked.append(self.rows)
        return self.inner(x, t)


def test_one_process_asks_a_batch_at_a_time_about_the_samples_that_it_was_told():
    model = Watched(ring())
    spread = Spread(model, batch=4)
    assert torch.allclose(spread(STATES, 300.0), ring()(STATES, 300.0), atol=1e-6)
    assert model.asked == [*[(i, i + 1, i + 2, i + 3) for i in range(0, 32, 4)], (32, 33, 34)]
    model.asked.clear()
    some = spread.for_samples([20, 22, 24, 26, 28, 30, 32, 34, 36])
    some(STATES[:9], 300.0)
    assert model.asked == [(20, 22), (24, 26), (28, 30), (32, 34), (36,)]  # so that up to eight processes have work
    assert spread.nfe == some.nfe == 44


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 16, 48, 1000])
@pytest.mark.parametrize("most", [1, 6, BATCH])
def test_batches_to_be_shared_are_as_large_as_leaves_work_for_eight(rows, most):
    size = shared_size(most, rows)
    assert shared_size(most, rows, rows, rows) == min(most, -(-rows // 2))  # three lists in six batches
    assert 1 <= size <= most
    assert size == most or rows <= 8 * size  # at most eight batches, unless they would be too large
    assert size == 1 or 8 * (size - 1) < rows  # one fewer would make more batches than that


@pytest.mark.parametrize("rows", [1, 9, 48, 1000])
def test_larger_batches_than_the_default_are_those_that_were_asked_for(rows):
    assert shared_size(BATCH + 1, rows) == shared_size(BATCH + 1, rows, rows) == BATCH + 1
    model = Watched(ring())
    Spread(model, batch=20)(STATES, 300.0)
    assert [len(asked) for asked in model.asked] == [20, len(STATES) - 20]


def test_nothing_within_one_of_several_jobs_is_divided_further():
    model = Watched(ring())
    spread = Spread(model, batch=4)
    spread.each([lambda: spread(STATES[:9], 300.0)])
    assert model.asked == [(0, 1, 2, 3), (4, 5, 6, 7), (8,)]


@pytest.mark.parametrize(("size", "batch"), [(2, 4), (3, 2), (3, 4), (3, 35), (2, 1)])
def test_every_process_gets_the_bits_of_one_and_each_batch_is_answered_once(size, batch):
    expected = Spread(ring(), batch=batch)(STATES, 300.0)

    def work():
        model = Watched(ring())
        spread = Spread(model, batch=batch)
        with joined_team() as team:
            sent = noting_what_is_sent(team)
            assert torch.equal(spread(STATES, 300.0), expected)
            own = min(batch, 5) if batch <= BATCH else batch  # of 35, an eighth
            every = [tuple(range(35))[start : start + own] for start in range(0, 35, own)]
            assert model.asked == every[team.rank :: size]
            assert spread.nfe == 35
            most = max(sum(map(len, every[rank::size])) for rank in range(size))
            assert sent == [4 * (2 * most + 1)]  # the answers of the one who has most, and a number

    assert [ended(child) for child in team_of(size, work)] == [0] * size


def test_calls_of_a_job_are_made_by_one_process_and_counted_by_all():
    def work():
        model = Watched(ring())
        spread = Spread(model, batch=3)
        with joined_team() as team:
            found = spread.each([lambda t=t: spread(STATES, t) for t in (100.0, 200.0, 300.0)])
            for answer, t in zip(found, (100.0, 200.0, 300.0), strict=True):
                assert torch.equal(answer, Spread(ring(), batch=3)(STATES, t))
            assert spread.nfe == 105
            assert len(model.asked) == (24 if team.leads else 12)

    assert [ended(child) for child in team_of(2, work)] == [0, 0]


def test_processes_that_ask_different_things_are_refused():
    def work():
        with pytest.raises(TeamError, match="have computed different states"), joined_team() as team:
            Spread(ring(), batch=3)(STATES + (1e-6 if team.leads else 0), 300.0)

    assert [ended(child) for child in team_of(2, work)] == [0, 0]


def test_a_gradient_is_that_of_the_model_in_every_process():
    def slope(model):
        x = STATES.clone().requires_grad_()
        return torch.autograd.grad(model(x, 300.0).square().sum(), [x])[0]

    expected = slope(Spread(ring(), batch=4))
    assert torch.allclose(expected, slope(ring()), atol=1e-5)

    def work():
        with joined_team():
            assert torch.equal(slope(Spread(ring(), batch=4)), expected)

    assert [ended(child) for child in team_of(2, work)] == [0, 0]


def test_a_batch_that_does_not_fit_is_halved_once_with_a_warning():
    sizes = []

    def crowded(most):
        def answer(x, t):
            if len(x) > most:
                raise torch.OutOfMemoryError("no memory")
            sizes.append(len(x))
            return torch.tanh(x)

        return Spread(Network(answer, (2,), DiscreteVP.named()), batch=8)

    model = crowded(most=4)
    with pytest.warns(UserWarning, match=r"no memory for a batch of 8, .* with --batch 3 every run"):
        assert torch.equal(model(STATES, 300.0), torch.tanh(STATES))
    assert sizes == [3, 2] * 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(STATES, 300.0)
    with (
        pytest.warns(UserWarning, match="halved"),
        pytest.raises(ModelFailed, match=r"batch of 3 .*OutOfMemoryError: no memory"),
    ):
        crowded(most=2)(STATES, 300.0)
