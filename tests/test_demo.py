import json
from dataclasses import replace

import numpy as np
import pytest

from geosprint.demo import run_demo, standing
from geosprint.models.exact import ring
from geosprint.noise import DiscreteVP, Flow
from geosprint.profile import CurvatureProfile
from geosprint.schedule import StepSchedule
from geosprint.tuned import Tuned


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return out, run_demo(ring(), out, steps=6, samples=12)


def test_the_demo_leaves_all_its_files(shown):
    out, done = shown
    names = ["profile.json", "results.csv", "results.md", "schedule.json", "summary.json", "tuned.json"]
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == names
    assert sorted(path.name for path in done.files if path.parent == out) == names
    for path in out.glob("*.json"):
        json.loads(path.read_text())


def test_the_files_of_the_demo_can_be_used_again(shown):
    out, done = shown
    schedule = StepSchedule.load(out / "schedule.json")
    assert len(schedule) == 6
    schedule.check_fits(ring().noise, "mixture")
    np.testing.assert_array_equal(schedule.timesteps, done.comparison.cell("ddim", "geosprint", 6).timesteps)
    tuned = Tuned.load(out / "tuned.json")[6]
    np.testing.assert_array_equal(tuned.timesteps, done.comparison.cell("ddim", "tuned", 6).timesteps)
    profile = CurvatureProfile.load(out / "profile.json")
    np.testing.assert_array_equal(profile.kept, done.profile.kept)


def test_every_schedule_of_the_demo_spends_the_same_calls(shown):
    _, done = shown
    cells = {cell.method: cell for cell in done.comparison.column("ddim", 6)}
    assert {"uniform-leading", "uniform-trailing", "quadratic", "karras", "gits", "geosprint"} <= cells.keys()
    assert {cell.nfe for cell in cells.values()} == {6}
    assert cells["uniform-leading"].start == 166 * 5


def test_the_demo_measures_longer_uniform_spacings_to_say_what_its_schedules_are_worth(shown):
    _, done = shown
    longer = [cell for cell in done.comparison.cells if cell.steps != 6]
    assert {cell.steps for cell in longer} == {12}
    assert {cell.method for cell in longer} == {"uniform-leading", "uniform-trailing", "uniform-linspace"}


def test_the_demo_runs_on_a_flow(tmp_path):
    done = run_demo(ring(noise=Flow()), tmp_path, steps=4, samples=10)
    assert "uniform-leading" not in {cell.method for cell in done.comparison.cells}
    assert done.schedule.timesteps[0] == 1000


def test_the_demo_runs_on_a_model_of_few_timesteps(tmp_path):
    done = run_demo(ring(noise=DiscreteVP.named("cosine", 250)), tmp_path, steps=4, samples=10)
    assert done.schedule.timesteps[0] == 249


def standing_of(done, ours, rival):
    """The sentence if our errors and those of the best other method were these."""
    of = {"geosprint": ours, "uniform-linspace": rival, "quadratic": np.full(8, 9.0)}
    cells = [replace(c, errors=np.asarray(of[c.method])) for c in done.comparison.cells if c.method in of]
    return standing(replace(done.comparison, cells=cells), "ddim", 6)


@pytest.mark.parametrize(
    ("ours", "rival", "said"),
    [
        (0.1, 0.25, "has a 2.50× lower error than"),
        (0.25, 0.1, "has a 2.50× higher error than"),
        (0.0, 0.1, "has a lower error"),
        (0.1, 0.0, "has a higher error"),
    ],
)
def test_the_headline_says_who_won(shown, ours, rival, said):
    sentence = standing_of(shown[1], np.full(8, ours), np.full(8, rival))
    assert said in sentence
    assert "uniform-linspace" in sentence


@pytest.mark.parametrize("error", [0.1, 0.0])
def test_the_headline_names_no_winner_where_there_is_none(shown, error):
    sentence = standing_of(shown[1], np.full(8, error), np.full(8, error))
    assert "lower" not in sentence
    assert "higher" not in sentence


def test_the_headline_names_no_winner_where_the_difference_may_be_chance(shown):
    ours, rival = np.array([0.1, 0.3, 0.1, 0.3]), np.array([0.31, 0.1, 0.31, 0.1])
    assert "no more than chance" in standing_of(shown[1], ours, rival)
