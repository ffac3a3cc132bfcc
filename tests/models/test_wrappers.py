"""A wrapped model is the model inside in all that it does not change, and can be copied and printed."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch

from geosprint.call_cache import Cached
from geosprint.errors import ModelError
from geosprint.integrations.adapter import as_model
from geosprint.models.base import Model, Network
from geosprint.models.exact import ring
from geosprint.models.spread import Spread
from geosprint.models.wrappers import Shown, Wrapped, check_model
from geosprint.noise import DiscreteVP, Flow
from geosprint.sampling import Counted, record, sample


class Asked:
    """Moves with every call, as a progress bar, and remembers nothing, as an empty cache."""

    def __init__(self):
        self.moved = 0

    def update(self, calls):
        self.moved += calls

    def find(self, question):
        return None

    def write(self, question, answer):
        self.moved += 1


@dataclass(frozen=True, eq=False)
class Labelled(Network):
    """One number a sample, which is what it predicts."""

    labels: tuple[float, ...] = ()

    @property
    def conditions(self):
        return {"labels": list(self.labels)}

    def for_samples(self, rows):
        return replace(self, labels=tuple(self.labels[row] for row in rows))

    def __call__(self, x, t):
        return torch.tensor(self.labels)[:, None].expand_as(x)


LABELS = (0.5, -1.0, 2.0, 0.25)


def labelled():
    inside = Labelled(lambda x, t: x, (2,), Flow(), "x0", 3.0, 2, "labelled", torch.device("cpu"), LABELS)
    assert isinstance(inside, Labelled)
    return inside


WRAPPERS = {
    "plain": Wrapped,
    "counted": Counted,
    "spread": Spread,
    "shown": lambda model: Shown(model, Asked()),
    "cached": lambda model: Cached(model, Asked()),
    "all": lambda model: Counted(Shown(Cached(model, Asked()), Asked())),
}


def innermost(model):
    return innermost(model.inner) if isinstance(model, Wrapped) else model


NAMES = ("name", "shape", "noise", "prediction", "clip", "calls", "device", "conditions")


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapped_model_is_still_that_model(wrap):
    model = labelled()
    wrapped = wrap(model)
    for name in NAMES:
        assert getattr(wrapped, name) == getattr(model, name), name
    assert innermost(wrapped) is model
    assert check_model(wrapped, "it") is wrapped is as_model(wrapped)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_the_model_of_a_batch_is_inside_the_same_wrapper(wrap):
    wrapped = wrap(labelled())
    some = wrapped.for_samples([3, 1])
    assert type(some) is type(wrapped)
    assert some(torch.zeros(2, 2), 500.0).tolist() == [[0.25, 0.25], [-1.0, -1.0]]
    drawn = sample(wrapped, [1000, 400], range(4), batch=3)
    assert drawn[:, 0].tolist() == pytest.approx(LABELS)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_wrapped_model_can_be_copied_and_printed(wrap):
    wrapped = wrap(ring())
    again = copy.deepcopy(wrapped)
    x = torch.ones(3, 2)
    assert torch.equal(again(x, 500.0), ring()(x, 500.0))
    assert innermost(again) is not innermost(wrapped)
    assert "Mixture(" in repr(wrapped)


def test_a_name_that_no_wrapper_forwards_is_an_error():
    with pytest.raises(AttributeError, match="no attribute 'deviation'"):
        Counted(ring()).deviation  # noqa: B018


def test_a_counted_model_and_those_of_its_batches_count_together():
    counted = Counted(labelled())
    counted.for_samples([0, 1])(torch.zeros(2, 2), 1.0)
    counted.for_samples([2])(torch.zeros(1, 2), 1.0)
    assert counted.nfe == 2 * (2 + 1)


class Plain:
    """An object of a user's with the seven names and no more."""

    name, shape, noise, prediction = "mine", (2,), DiscreteVP.named(), "x0"
    clip, calls, device = None, 1, torch.device("cpu")

    def __call__(self, x, t):
        return 0.5 * x


class Picky(Plain):
    """It also picks what it draws by the row, and does not say so in files."""

    def __init__(self, scale=(1.0, 2.0, 3.0)):
        self.scale = scale

    def for_samples(self, rows):
        return Picky(tuple(self.scale[row] for row in rows))

    def __call__(self, x, t):
        return torch.tensor(self.scale)[:, None] * torch.ones_like(x)


def test_a_plain_object_is_completed():
    model = as_model(Plain())
    assert (model.name, model.conditions) == ("mine", {})
    assert model.for_samples([5, 6]) is model
    assert record(Plain(), [0, 1, 2], 4, batch=2).origin.conditions == {}


def test_a_plain_object_that_knows_its_rows_is_asked_for_them():
    assert sample(Picky(), [900, 300], range(3), batch=2)[:, 1].tolist() == pytest.approx([1.0, 2.0, 3.0])


def test_a_class_that_derives_from_model_needs_only_what_differs():
    class Mine(Model):
        def __init__(self):
            self.name, self.shape, self.noise, self.prediction = "mine", (2,), Flow(), "flow"
            self.clip, self.calls, self.device = None, 1, torch.device("cpu")

        def __call__(self, x, t):
            return x

    mine = Mine()
    assert as_model(mine) is mine
    assert (mine.for_samples([1]), mine.conditions) == (mine, {})


def test_inputs_are_for_pipelines():
    with pytest.raises(ModelError, match=r"inputs are for diffusers pipelines.*Mixture is none"):
        as_model(ring(), object())
