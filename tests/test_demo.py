import json

import numpy as np
import pytest
from PIL import Image

from geosprint.demo import Demo, Row, run_demo
from geosprint.metrics.endpoint import endpoint_errors
from geosprint.models.mixture import ring
from geosprint.noise import DiscreteVP, Flow
from geosprint.profile import CurvatureProfile
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return out, run_demo(ring(), out, steps=6, samples=12)


def test_the_demo_leaves_all_its_files(shown):
    out, done = shown
    names = ["profile.json", "profile.png", "samples.png", "schedule.json", "steps.png"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert sorted(path.name for path in done.files) == names
    for path in out.glob("*.png"):
        with Image.open(path) as image:
            assert np.asarray(image.convert("L")).std() > 1
    for path in out.glob("*.json"):
        json.loads(path.read_text())


def test_the_files_of_the_demo_can_be_used_again(shown):
    out, done = shown
    schedule = StepSchedule.load(out / "schedule.json")
    assert len(schedule) == 6
    schedule.check_fits(ring().noise, "mixture")
    profile = CurvatureProfile.load(out / "profile.json")
    np.testing.assert_array_equal(profile.kept, done.profile.kept)
    assert profile.seeds == tuple(range(100))


def test_every_schedule_of_the_demo_spends_the_same_calls(shown):
    _, done = shown
    assert [row.method for row in done.rows][-1] == "geosprint"
    assert {row.method for row in done.rows} == {
        "uniform-leading", "uniform-trailing", "uniform-linspace", "quadratic", "logsnr",
        "geosprint (literal)", "geosprint",
    }  # fmt: skip
    assert {row.nfe for row in done.rows} == {6}
    starts = {row.method: row.start for row in done.rows}
    assert starts["uniform-leading"] == 166 * 5
    assert all(start == 999 for name, start in starts.items() if name != "uniform-leading")


def test_the_errors_of_the_demo_are_those_to_a_thousand_steps_from_fresh_seeds(shown):
    _, done = shown
    model, seeds = ring(), range(1_000_000, 1_000_012)
    fine = sample(model, np.arange(999.0, -1, -1), seeds)
    ours = sample(model, done.schedule.timesteps, seeds)
    row = done.rows[-1]
    assert row.rmse.value == pytest.approx(endpoint_errors(ours, fine).mean(), rel=1e-3)
    assert row.rmse.low <= row.rmse.value <= row.rmse.high


def test_the_demo_runs_on_a_flow(tmp_path):
    done = run_demo(ring(noise=Flow()), tmp_path, steps=4, samples=4)
    assert len(done.files) == 5
    assert "uniform-leading" not in {row.method for row in done.rows}
    assert done.rows[-1].start == 1000


def test_the_demo_runs_on_a_model_of_few_timesteps(tmp_path):
    done = run_demo(ring(noise=DiscreteVP.named("cosine", 250)), tmp_path, steps=4, samples=4)
    assert done.rows[-1].start == 249


def demo_with(ours, rival):
    other = Row("uniform-linspace", 999, 10, np.full(8, rival), 0.0)
    far = Row("quadratic", 999, 10, np.full(8, 9.0), 0.0)
    return Demo([far, other, Row("geosprint", 999, 10, np.full(8, ours), 0.0)], None, None, [])


@pytest.mark.parametrize(
    ("ours", "rival", "said"),
    [
        (0.1, 0.25, "2.50 times closer to"),
        (0.25, 0.1, "2.50 times farther from"),
        (0.0, 0.1, "closer"),
        (0.1, 0.0, "farther"),
    ],
)
def test_the_headline_says_who_won(ours, rival, said):
    sentence = demo_with(ours, rival).headline
    assert said in sentence
    assert "uniform-linspace" in sentence


@pytest.mark.parametrize("error", [0.1, 0.0])
def test_the_headline_names_no_winner_where_there_is_none(error):
    sentence = demo_with(error, error).headline
    assert "closer" not in sentence
    assert "farther" not in sentence


def test_the_headline_names_no_winner_where_the_difference_may_be_chance():
    ours, rival = np.array([0.1, 0.3, 0.1, 0.3]), np.array([0.31, 0.1, 0.31, 0.1])
    rows = [Row("quadratic", 999, 10, rival, 0.0), Row("geosprint", 999, 10, ours, 0.0)]
    assert "no more than chance" in Demo(rows, None, None, []).headline
