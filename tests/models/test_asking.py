"""What a model may do when it is asked, and what is noticed: buffers, written inputs, precision, batches, dropout."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import geosprint
from geosprint import Network, compare, extract, fit, record, sample, tune
from geosprint.call_cache import caching_calls
from geosprint.comparison.cells import Memory
from geosprint.errors import FileError, ModelError, ModelFailed
from geosprint.models.base import predict
from geosprint.models.exact import Gaussian
from geosprint.models.spread import Spread
from geosprint.models.wrappers import require_repeatable
from geosprint.rivals.base import Task
from geosprint.rivals.ld3 import TimeLever
from geosprint.sampling import Counted
from geosprint.solvers import SOLVERS

TIMES = [999.0, 800.0, 500.0, 250.0, 60.0]
EXACT = Gaussian(torch.tensor([4.0, 1.0, 0.3, 0.05, 0.01], dtype=torch.float64), in_cosine_basis=False)
FIT = {"budget_nfe": 1800, "progress": False}


def as_network(function, **more):
    """The exact model, asked through this function of (x, t)."""
    return Network(function, EXACT.shape, EXACT.noise, EXACT.prediction, **more)


def in_one_buffer():
    buffers = {}

    def answer(x, t):
        found = EXACT(x, t)
        return buffers.setdefault(x.shape, torch.empty_like(found)).copy_(found)

    return as_network(answer)


def writing_into_its_input():
    def answer(x, t):
        found = EXACT(x, t)
        x.fill_(7.0)
        return found

    return as_network(answer)


def answering_in_its_input():
    return as_network(lambda x, t: x.copy_(EXACT(x, t)))


CARELESS = [in_one_buffer, writing_into_its_input, answering_in_its_input]


@pytest.mark.parametrize("careless", CARELESS)
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_buffers_and_inputs_that_are_written_into_change_no_sample(solver, careless):
    expected = sample(as_network(EXACT), TIMES, range(3), solver)
    assert torch.equal(sample(careless(), TIMES, range(3), solver), expected)


@pytest.mark.parametrize("careless", CARELESS)
def test_nor_a_recording(careless):
    expected, found = (record(model, range(3), 20, predictions=True) for model in (as_network(EXACT), careless()))
    for name in ("states", "x0", "eps"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("careless", CARELESS)
def test_nor_the_coefficients_of_a_fit(careless):
    expected, found = (fit(model, 3, **FIT) for model in (as_network(EXACT), careless()))
    assert found.results[0].made.coefficients == expected.results[0].made.coefficients


@pytest.mark.parametrize("careless", CARELESS)
def test_nor_the_slopes_in_time_of_ld3(careless):
    x, t = torch.randn(2, 5), torch.tensor(500.0, dtype=torch.float64, requires_grad=True)
    slopes = []
    for model in (as_network(EXACT), careless()):
        TimeLever(Counted(model)).predict(x, t).x0.sum().backward()
        slopes.append(float(t.grad))
        t.grad = None
    assert slopes[0] == slopes[1] != 0


def test_answers_in_double_precision_are_those_of_single_precision():
    double = as_network(lambda x, t: EXACT(x.double(), t))
    assert torch.allclose(sample(double, TIMES, range(2)), sample(EXACT, TIMES, range(2)), atol=1e-5)
    assert predict(double, torch.ones(1, 5), 500.0).eps.dtype == torch.float32
    assert tune(double, 3, **FIT).steps == (3,)


@pytest.mark.parametrize("answer", [torch.ones(1, 5, dtype=torch.int64), torch.ones(1, 5, dtype=torch.complex64)])
def test_whole_and_complex_numbers_are_refused(answer):
    with pytest.raises(ModelError, match=r"must return a tensor of floats, got torch\."):
        predict(as_network(lambda x, t: answer), torch.ones(1, 5), 500.0)


def test_what_the_code_of_a_model_raises_is_one_sentence():
    def failing(x, t):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.\nmore")

    with pytest.raises(ModelFailed) as refused:
        sample(as_network(failing, name="big"), TIMES, range(3))
    assert str(refused.value) == (
        "model 'big' failed on a batch of 3 at t = 999 (fewer at once: --batch, in Python batch): "
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB."
    )
    assert isinstance(refused.value.__cause__, torch.OutOfMemoryError)


# Batches


def taking(most):
    def answer(x, t):
        if len(x) > most:
            raise ValueError(f"at most {most} at once")
        return EXACT(x, t)

    return as_network(answer)


def test_a_batch_is_cut_into_parts_with_the_rows_of_each():
    class Rows(Gaussian):
        """Adds the row of each sample to its answer."""

        rows: tuple[int, ...] = ()

        def for_samples(self, rows):
            narrowed = copy.copy(self)
            object.__setattr__(narrowed, "rows", tuple(rows))
            return narrowed

        def __call__(self, x, t):
            assert len(x) <= 2
            return 0 * x + torch.tensor(self.rows, dtype=x.dtype)[:, None]

    model = Spread(Rows(EXACT.variances, in_cosine_basis=False), batch=2)
    assert model.for_samples([4, 8, 9])(torch.zeros(3, 5), 1.0)[:, 0].tolist() == [4, 8, 9]
    assert model(torch.zeros(5, 5), 1.0)[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "make",
    [
        lambda model, batch: sum(fit(model, 3, batch=batch, **FIT).results[0].made.coefficients, ()),
        lambda model, batch: tune(model, 3, batch=batch, **FIT).results[0].schedule.timesteps,
        lambda model, batch: tune(model, 3, solver="ddim", batch=batch, **FIT).results[0].schedule.timesteps,
    ],
    ids=["fit", "tune", "tune a known solver"],
)
def test_a_model_that_takes_one_is_tuned_and_fitted_with_one(make):
    with pytest.raises(ModelFailed, match=r"--batch, in Python batch\): ValueError: at most 1 at once"):
        make(taking(1), 32)
    np.testing.assert_allclose(make(taking(1), 1), make(as_network(EXACT), 32), atol=1e-3)


def test_a_model_that_takes_four_is_compared_with_four(tmp_path):
    small = {"steps": 3, "samples": 10, "trajectories": 6, "reference_steps": 12, "fine_steps": 8, "ruler": ()}
    learnt = ("s4s-alt", "dyweight", "ld3-l2", "bns-l2")
    left_out = (*learnt, "tuned", "tuned+fitted")  # minutes; `fitted` asks as they do
    four = compare(taking(4), tmp_path / "four", batch=4, leave_out=left_out, **small)
    all_at_once = compare(as_network(EXACT), tmp_path / "all", leave_out=left_out, **small)
    assert [cell.method for cell in four.cells] == [cell.method for cell in all_at_once.cells]
    assert "fitted" in {cell.method for cell in four.cells}
    for one, other in zip(four.cells, all_at_once.cells, strict=True):
        np.testing.assert_allclose(one.errors, other.errors, rtol=1e-2, atol=1e-4)


# Models that answer one question in two ways


class Small(nn.Module):
    """A network of five numbers with something in its middle."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(5, 8), middle, nn.Linear(8, 5))

    def forward(self, x, t):
        return self.layers(x)


ASKING = {
    "tune": lambda model: tune(model, 3, **FIT),
    "fit": lambda model: fit(model, 3, **FIT),
    "compare": lambda model: compare(model, steps=3),
    "extract": lambda model: extract(model, 2, 10),
}


@pytest.mark.parametrize("asking", ASKING)
def test_dropout_that_was_left_on_is_named(asking):
    network = Small(nn.Dropout(0.1))
    with pytest.raises(ModelError, match=r"'network' answers the same sample \d+% differently when it is asked twice"):
        ASKING[asking](as_network(network))
    require_repeatable(as_network(network.eval()), 32)


@pytest.mark.parametrize("asking", ASKING)
def test_samples_that_see_one_another_are_named(asking):
    def answer(x, t):
        return EXACT(x, t) - EXACT(x, t).mean(dim=0)

    with pytest.raises(ModelError, match=r"\d+% differently alone and beside another; .*--batch 1"):
        ASKING[asking](as_network(answer))
    require_repeatable(as_network(answer), 1)  # never asked about two


def test_a_model_that_answers_nothing_but_zeros_is_repeatable():
    require_repeatable(as_network(lambda x, t: 0 * x), 32)


# Nearly equal weights


def begin_tuning(work, model):
    with caching_calls(model, work, {}):
        pass


BEGINNING = {
    "tune": begin_tuning,
    "compare": lambda work, model: Memory(work).refuse_another_model(model),
    "extract": lambda work, model: extract(model, 2, 10, work=work),
}


def nearly(factor):
    torch.manual_seed(0)
    network = Small(nn.SiLU()).eval()
    with torch.no_grad():
        for own in network.parameters():
            own.mul_(factor)
    return network.requires_grad_(False)


@pytest.mark.parametrize("factor", [1.03, 1.009, 1.0001])
@pytest.mark.parametrize("readable", [True, False], ids=["weights that can be read", "a closure"])
@pytest.mark.parametrize("begin", BEGINNING)
def test_nearly_equal_weights_are_not_mixed(begin, readable, factor, tmp_path):
    run = partial(BEGINNING[begin], tmp_path)

    def model(factor):
        network = nearly(factor)
        return as_network(network if readable else lambda x, t: 10 * network(x, t))

    run(model(1.0))
    run(model(1.0))
    if not readable and factor == 1.0001:
        return  # within rounding of what four steps can tell
    with pytest.raises(FileError, match=r"with weights \w+, and now it is weights" if readable else "other outputs"):
        run(model(factor))


# What no model can be


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"calls": 0}, "the calls of a Network must be network calls per sample, 1 or more, got 0"),
        ({"shape": ()}, r"the shape of a Network must be that of a sample, such as \(3, 32, 32\), got \(\)"),
        ({"shape": (0,)}, r"got \(0,\)"),
        ({"clip": -1.0}, "the clip of a Network must be a positive number or None, got -1.0"),
        ({"clip": float("nan")}, "positive number or None, got nan"),
        ({"clip": "x"}, "positive number or None, got 'x'"),
        ({"noise": None}, r"the noise of a Network must be a noise schedule, such as geosprint.Flow\(\), got None"),
        ({"name": "a\x1b[31m"}, "without control characters"),
    ],
)
def test_what_no_model_can_be_is_refused(wrong, said):
    model = replace(as_network(EXACT), **wrong)
    for verb in (geosprint.as_model, lambda model: sample(model, TIMES, [0]), lambda model: tune(model, 3)):
        with pytest.raises(ModelError, match=said):
            verb(model)


def test_a_counted_model_is_copied_deeply():
    counted = Counted(EXACT)
    same = copy.deepcopy(counted)
    same(torch.zeros(2, 5), 5.0)
    assert (same.nfe, counted.nfe, same.name) == (2, 0, counted.name)
    assert copy.deepcopy(Task.of(EXACT, "ddim")).model.shape == (5,)
