import math
from dataclasses import replace

import pytest
import torch

from geosprint.errors import ModelError, ScheduleError
from geosprint.models.base import Network
from geosprint.models.exact import ring
from geosprint.models.networks import Card, PretrainedModel
from geosprint.models.wrappers import check_model
from geosprint.noise import CLEAN, DiscreteVP, Flow
from geosprint.sampling import Counted, SeededNoise, record, record_batches, sample, walk
from geosprint.solvers import SOLVERS, ddim

TIMES = [999, 800, 650, 400, 210, 90, 10]


def network(function, noise=None, **rest):
    return Network(function, (2,), noise or DiscreteVP.named(), **{"prediction": "x0", "name": "tried", **rest})


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow()], ids=["vp", "flow"])
def test_a_seed_gives_its_sample_at_any_batch_size_and_in_any_company(solver, noise):
    model = ring(noise=noise)
    together = sample(model, TIMES, range(5, 12), solver)
    for batch in (1, 3):
        torch.testing.assert_close(
            sample(model, TIMES, range(5, 12), solver, batch=batch), together, rtol=1e-4, atol=1e-4
        )
    torch.testing.assert_close(sample(model, TIMES, [9, 6], solver), together[[4, 1]], rtol=1e-4, atol=1e-4)


def test_a_seed_gives_its_sample_at_any_batch_size_with_fresh_noise_in_ddim():
    model = ring()
    together = sample(model, TIMES, range(6), eta=0.7)
    torch.testing.assert_close(sample(model, TIMES, range(6), eta=0.7, batch=4), together, rtol=1e-4, atol=1e-4)
    assert (together - sample(model, TIMES, range(6))).abs().max() > 0.01


def test_other_seeds_give_other_samples():
    found = sample(ring(), TIMES, range(8), "ddpm")
    assert found.shape == (8, 2)
    assert len({tuple(row) for row in found.tolist()}) == 8


def test_seeded_noise_is_that_of_one_torch_generator_per_seed():
    noise = SeededNoise([3, 8], (2, 2), torch.device("cpu"))
    first, second = noise.draw(), noise.draw()
    generator = torch.Generator().manual_seed(8)
    assert torch.equal(first[1], torch.randn(2, 2, generator=generator))
    assert torch.equal(second[1], torch.randn(2, 2, generator=generator))


def test_a_walk_yields_every_state_and_ends_clean():
    model, x = ring(), torch.ones(4, 2)
    found = list(walk(model, x, TIMES, ddim, None))
    assert [state.t for state in found] == [*TIMES, CLEAN]
    assert torch.equal(found[0].x, x)
    assert all(state.prediction is not None for state in found[:-1])
    assert found[-1].prediction is None


def test_a_walk_asks_the_model_only_when_the_next_state_is_wanted():
    model = Counted(ring())
    walking = walk(model, torch.ones(1, 2), TIMES, ddim, None)
    next(walking)
    next(walking)
    assert model.nfe == 2


def test_one_step_returns_the_prediction_itself():
    answer = torch.tensor([0.25, -0.5])
    model = network(lambda x, t: answer.expand_as(x))
    for solver in SOLVERS:
        torch.testing.assert_close(sample(model, [700], [0, 1], solver), answer.expand(2, 2))


@pytest.mark.parametrize("noise", [DiscreteVP.named(), Flow(shift=3)], ids=["vp", "flow"])
def test_recorded_states_are_the_ddim_steps_of_the_recorded_predictions(noise):
    model = ring(noise=noise)
    recorded = record(model, range(3), steps=12, batch=2, predictions=True)
    assert recorded.states.shape == (3, 13, 2)
    assert recorded.x0.shape == recorded.eps.shape == (3, 12, 2)
    assert recorded.seeds == (0, 1, 2)
    assert recorded.timesteps[-1] == CLEAN
    for i in range(12):
        a, s = noise.signal_and_sigma(recorded.timesteps[i])
        a1, s1 = noise.signal_and_sigma(recorded.timesteps[i + 1])
        x0, eps = recorded.x0[:, i], recorded.eps[:, i]
        torch.testing.assert_close(recorded.states[:, i], a * x0 + s * eps, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(recorded.states[:, i + 1], a1 * x0 + s1 * eps, rtol=1e-5, atol=1e-5)


def test_a_recording_starts_at_each_seeds_noise_and_ends_at_its_sample():
    model = ring()
    recorded = record(model, [4, 7], steps=25)
    assert recorded.timesteps[0] == 999
    assert recorded.timesteps[-2] == 0
    assert torch.equal(recorded.states[1, 0], torch.randn(2, generator=torch.Generator().manual_seed(7)))
    torch.testing.assert_close(recorded.states[:, -1], sample(model, recorded.timesteps[:-1], [4, 7]))
    assert recorded.x0 is None
    assert recorded.eps is None


def test_recording_in_batches_holds_the_same_states():
    parts = list(record_batches(ring(), range(5), steps=6, batch=2))
    assert [part.seeds for part in parts] == [(0, 1), (2, 3), (4,)]
    together = record(ring(), range(5), steps=6)
    torch.testing.assert_close(torch.cat([part.states for part in parts]), together.states, rtol=1e-5, atol=1e-5)


def test_images_are_recorded_flat_in_the_order_of_their_pixels():
    model = Network(lambda x, t: x, (1, 2, 3), DiscreteVP.named(), "x0")
    recorded = record(model, [0], steps=4)
    assert torch.equal(
        recorded.states[0, 0], torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(0)).flatten()
    )


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("run", [sample, lambda model, times, seeds: record(model, seeds, steps=5, batch=2)])
def test_nonsense_from_a_model_names_the_seed_and_the_timestep(wrong, run):
    bad = torch.randn(2, generator=torch.Generator().manual_seed(13))
    spoilt_at = {sample: 650}.get(run, 999)

    def function(x, t):
        answer = x.clone()
        if t == spoilt_at:
            # With x0 predicted as x itself, every state is a multiple of its first noise.
            same = torch.nn.functional.cosine_similarity(x, bad.expand_as(x)) > 1 - 1e-5
            answer[same] = wrong
        return answer

    with pytest.raises(ModelError, match=rf"'tried'.*seed 13 at t = {spoilt_at}\b"):
        run(network(function), TIMES, [10, 11, 12, 13])


def test_nonsense_from_the_second_look_of_heun_names_the_timestep():
    asked = []

    def function(x, t):
        asked.append(t)
        return x * (math.nan if asked.count(t) == 1 and t == 650 else 0.5)

    with pytest.raises(ModelError, match="seed 3 at t = 650"):
        sample(network(function), TIMES, [3], "heun")


@pytest.mark.parametrize(
    "answer",
    [lambda x, t: x[:, :1], lambda x, t: x[0], lambda x, t: x.mean(), lambda x, t: torch.cat([x, x], dim=1)],
    ids=["narrower", "without a batch", "one number", "wider"],
)
def test_an_answer_of_another_shape_is_refused(answer):
    with pytest.raises(ModelError, match=r"'tried' was given \(3, 2\) at t = 999 .* same shape"):
        sample(network(answer), TIMES, range(3))


@pytest.mark.parametrize("wrap", [lambda x: (x,), lambda x: {"sample": x}, lambda x: None])
def test_an_answer_that_is_no_tensor_is_refused(wrap):
    with pytest.raises(ModelError, match="tensor"):
        sample(network(lambda x, t: wrap(x)), TIMES, range(2))


def test_an_unknown_kind_of_prediction_is_refused():
    with pytest.raises(ModelError, match="eps, x0, v, flow"):
        sample(network(lambda x, t: x, prediction="epsilon"), TIMES, [0])


@pytest.mark.parametrize(
    ("timesteps", "said"),
    [
        ([900, 900, 100], "900 is followed by 900"),
        ([900, 100, 300], "100 is followed by 300"),
        ([1000, 500], r"0\.\.999, got 1000"),
        ([500, -1], r"0\.\.999, got -1"),
        ([500.5, 20], r"whole timesteps in 0\.\.999, got 500\.5"),
        ([500, math.nan], "nan"),
        ([], "at least one"),
        ([[900, 100]], "shape"),
    ],
)
def test_timesteps_that_no_solver_could_walk_are_refused(timesteps, said):
    with pytest.raises(ScheduleError, match=said):
        sample(ring(), timesteps, [0])


def test_a_flow_takes_fractions_but_not_its_clean_end():
    model = ring(noise=Flow())
    assert torch.isfinite(sample(model, [1000, 0.5], [0])).all()
    with pytest.raises(ScheduleError, match=r"model 'mixture' knows times in 0\.\.1000, got 0"):
        sample(model, [1000, 0], [0])


@pytest.mark.parametrize("options", [{"seeds": []}, {"seeds": [0], "batch": 0}, {"seeds": [0], "batch": -2}])
def test_no_seeds_or_no_batch_are_refused(options):
    with pytest.raises(ScheduleError, match="at least"):
        sample(ring(), TIMES, **options)


def test_network_calls_are_counted_per_sample_and_twice_with_guidance():
    guided = Counted(replace(ring(), calls=2))
    sample(guided, TIMES, range(5), batch=2)
    assert guided.nfe == 2 * 5 * len(TIMES)
    sample(guided, TIMES, range(5), "heun")
    assert guided.nfe == 2 * 5 * len(TIMES) + 2 * 5 * (2 * len(TIMES) - 1)


def test_a_counted_model_is_still_that_model():
    model = ring()
    counted = Counted(model)
    assert check_model(counted, "counted") is counted
    assert (counted.name, counted.shape, counted.noise) == (model.name, model.shape, model.noise)


def test_sampling_keeps_no_gradients():
    layer = torch.nn.Linear(2, 2)
    model = network(lambda x, t: layer(x))
    assert not sample(model, TIMES, [0]).requires_grad
    assert not record(model, [0], steps=4, predictions=True).x0.requires_grad


def test_a_candidate_that_lacks_a_name_of_the_protocol_is_refused():
    class Half:
        name, shape, noise, prediction, clip, calls = "half", (2,), None, "eps", None, 1

        def __call__(self, x, t):
            return x

    with pytest.raises(ModelError, match="Half lacks device"):
        check_model(Half(), "half()")
    with pytest.raises(ModelError, match="NoneType lacks name"):
        check_model(None, "nothing()")


class ToLabel(torch.nn.Module):
    """The exact flow to a picture filled with a tenth of its label (the null class, 10, goes to 1)."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, t, labels):
        return (x - labels.view(-1, 1, 1, 1) / 10) / (t / 1000)


def labelled(labels, guidance=1.0):
    card = Card("to-label", Flow(), "flow", None, (1, 4, 4), 1, 10, "")
    return PretrainedModel(card, ToLabel(), torch.tensor(labels), guidance)


FLOW_TIMES = [1000, 700, 300, 50]


def test_labels_follow_their_samples_at_any_batch_size():
    model = labelled(range(10))
    together = sample(model, FLOW_TIMES, range(10), "euler", batch=32)
    torch.testing.assert_close(together, (torch.arange(10) / 10).view(10, 1, 1, 1).expand(10, 1, 4, 4))
    torch.testing.assert_close(sample(model, FLOW_TIMES, range(10), "euler", batch=3), together)
    recorded = record(model, range(10), steps=5, solver="euler", batch=3, predictions=True)
    torch.testing.assert_close(recorded.states[:, -1], together.flatten(1))
    torch.testing.assert_close(recorded.x0[:, 0], together.flatten(1))


def test_one_label_for_all_serves_every_batch():
    drawn = sample(labelled([7]), FLOW_TIMES, range(5), "euler", batch=2)
    torch.testing.assert_close(drawn, torch.full((5, 1, 4, 4), 0.7))


@pytest.mark.parametrize("wrap", [Counted, lambda model: Counted(Counted(model))], ids=["once", "twice"])
def test_every_batch_of_a_labelled_model_is_counted_by_the_whole(wrap):
    counted = wrap(labelled(range(10), guidance=2.0))
    drawn = sample(counted, FLOW_TIMES, range(10), "euler", batch=3)
    assert counted.nfe == 2 * 10 * len(FLOW_TIMES)
    assert record(counted, range(10), steps=5, batch=4).nfe == 2 * 10 * 5
    assert counted.nfe == 2 * 10 * (len(FLOW_TIMES) + 5)
    null, asked = 1.0, torch.arange(10) / 10
    torch.testing.assert_close(drawn[:, 0, 0, 0], null + 2 * (asked - null), rtol=1e-4, atol=1e-4)


def test_more_samples_than_labels_are_refused():
    for batch in (3, 32):
        with pytest.raises(ModelError, match="holds 10 labels and was asked for sample"):
            sample(labelled(range(10)), FLOW_TIMES, range(12), "euler", batch=batch)
