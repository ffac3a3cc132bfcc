"""Answers that are kept: no call is made twice, and no call gets the answer to another one."""

from __future__ import annotations

import pytest
import torch
from asked import Asked, gaussian

from geosprint.call_cache import PAGE, caching_calls
from geosprint.errors import FileError
from geosprint.models.base import Network
from geosprint.models.fingerprint import PROBE_STEPS as PROBE
from geosprint.runs.store import Store

JOB = {"test": {"count": 2 * PAGE + 5}}
STATES = torch.randn(2 * PAGE + 5, 3, 5, generator=torch.Generator().manual_seed(0))
TIMES = torch.linspace(999, 0, len(STATES)).round().tolist()


def asked_all(model, work, states=STATES):
    """What a model answers to all these questions, with a work directory; and how many it was asked itself."""
    counting = Asked(model=model)
    with caching_calls(counting, work, JOB) as known:
        found = [known(x, t) for x, t in zip(states, TIMES, strict=True)]
    return found, counting.questions - PROBE


def equal(found, states=STATES, model=None):
    model = model or gaussian()
    return all(torch.equal(one, model(x, t)) for one, x, t in zip(found, states, TIMES, strict=True))


def test_without_a_directory_it_is_the_model_itself():
    model = gaussian()
    with caching_calls(model, None, JOB) as known:
        assert known is model


def test_every_question_is_asked_once_written_once_and_answered_by_the_same_bits(tmp_path, monkeypatch):
    written, keep = [], Store.keep
    monkeypatch.setattr(Store, "keep", lambda store, key, *given: (written.append(key), keep(store, key, *given)))
    for questions in (len(STATES), 0):
        found, asked = asked_all(gaussian(), tmp_path)
        assert asked == questions
        assert equal(found)
    assert len(written) == len(set(written)) == 3


def test_a_run_that_is_stopped_loses_nothing_that_was_answered(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        asked_all(Asked(most=PROBE + 3 * (PAGE + 4)), tmp_path)
    found, asked = asked_all(gaussian(), tmp_path)
    assert asked == len(STATES) - (PAGE + 4)
    assert equal(found)
    assert asked_all(gaussian(), tmp_path)[1] == 0


def test_of_a_damaged_page_all_questions_are_asked_again_and_of_others_none(tmp_path):
    asked_all(gaussian(), tmp_path)
    path = max(tmp_path.glob("calls-*"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(bytes(content))
    found, asked = asked_all(gaussian(), tmp_path)
    assert asked == PAGE
    assert equal(found)
    assert asked_all(gaussian(), tmp_path)[1] == 0


@pytest.mark.parametrize("at", [0, PAGE - 1, PAGE, len(STATES) - 1])
def test_another_question_at_some_place_gets_its_own_answer(tmp_path, at):
    asked_all(gaussian(), tmp_path)
    others = STATES.clone()
    others[at, 1, 2] = torch.nextafter(others[at, 1, 2], torch.tensor(9.0))  # one bit
    for again in (1, 0):  # it is kept then, also where an old page was full before
        found, asked = asked_all(gaussian(), tmp_path, others)
        assert asked == again
        assert equal(found, others)


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(2, 5), 11.0, (0, 1)),
        (torch.zeros(2, 5), 10.0, (0, 2)),
        (torch.zeros(2, 5, dtype=torch.int32), 10.0, (0, 1)),
        (torch.zeros(5, 2), 10.0, (0, 1)),
        (torch.zeros(2, 5).index_fill(1, torch.tensor([4]), 1e-9), 10.0, (0, 1)),
    ],
    ids=["time", "rows", "dtype", "shape", "number"],
)
def test_a_question_is_the_time_the_samples_and_their_numbers(tmp_path, other):
    one = (torch.zeros(2, 5), 10.0, (0, 1))
    shifting = Network(lambda x, t: x + 1, (5,), gaussian().noise, "x0")
    for (x, t, rows), expected in ((one, 1), (one, 0), (other, 1)):
        model = Asked(model=shifting)
        with caching_calls(model, tmp_path, JOB) as known:
            answer = known.for_samples(rows)(x, t)
        assert model.questions - PROBE == expected
        assert answer.dtype == x.dtype
        assert torch.equal(answer, x + 1)


def test_what_is_done_to_an_answer_does_not_change_what_was_kept(tmp_path):
    for count in (3, 4):  # the second time, old answers and a new one are kept together
        with caching_calls(gaussian(), tmp_path, JOB) as known:
            for x, t in zip(STATES[:count], TIMES[:count], strict=True):
                known(x, t).zero_()
    found, _ = asked_all(gaussian(), tmp_path)
    assert equal(found)


def test_a_model_may_answer_in_one_and_the_same_tensor(tmp_path):
    buffer = torch.empty(3, 5)

    class Thrifty(Asked):
        def __call__(self, x, t):
            return buffer[: len(x)].copy_(super().__call__(x, t))

    asked_all(Thrifty(), tmp_path)
    found, asked = asked_all(gaussian(), tmp_path)
    assert asked == 0
    assert equal(found)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_answers_keep_their_precision(tmp_path, kind):
    class Coarse(Asked):
        def __call__(self, x, t):
            return super().__call__(x, t).to(kind)

    for _ in range(2):
        with caching_calls(Coarse(), tmp_path, JOB) as known:
            answer = known(STATES[0], 500.0)
        assert answer.dtype == kind
        assert torch.equal(answer, gaussian()(STATES[0], 500.0).to(kind))


def test_a_place_that_cannot_be_written_is_one_sentence_with_a_way_out(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(FileError, match=r"cannot write .*manifest\.json: .*; name another directory"),
        caching_calls(gaussian(), tmp_path / "file", JOB),
    ):
        pass
