from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import numbers_of, word
from scipy.stats import linregress, spearmanr
from toy import TOY

from geosprint.extraction import extract
from geosprint.models.exact import ring
from geosprint.paper.budget import BUDGET, fits, steps_between
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.sampling import record
from geosprint.schedule import build_schedule
from references.geometry import score_of_kept


@pytest.fixture(scope="module")
def finding():
    return BUDGET.run(TOY)


def part(finding, name):
    return [row for row in finding.rows if row["part"] == name]


def test_rows_are_the_curve_and_the_schedules_that_were_sampled(finding):
    assert len({tuple(row) for row in finding.rows}) == 1
    assert [row["steps"] for row in part(finding, "curve")] == list(range(2, 16))
    ours = [row["steps"] for row in part(finding, "quality") if row["schedule"] == "geosprint"]
    assert sorted(ours) == [4, 6, 8]
    assert all(row["rmse"] is None for row in part(finding, "curve"))


@pytest.mark.parametrize("steps", [3, 5, 9])
def test_the_curve_is_the_mean_score_of_the_schedule_by_its_definition(finding, steps):
    walks = record(ring(), range(8), 30)
    times = build_schedule(extract(ring(), 8, 30), steps).timesteps
    kept = [int(np.abs(walks.timesteps[:-1] - t).argmin()) for t in times]
    expected = score_of_kept(walks.gram(), kept).mean()
    (row,) = [row for row in part(finding, "curve") if row["steps"] == steps]
    assert row["score"] == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_fits_are_those_of_plain_regression():
    random = np.random.default_rng(3)
    curve = {k: float(np.exp(-0.3 * k + 0.5 * random.standard_normal())) for k in range(2, 40)}
    steps, logs = np.array(list(curve)), np.log(list(curve.values()))
    found, power, exponential = fits(curve), linregress(np.log(steps), logs), linregress(steps, logs)
    assert found["r2_log_steps"] == pytest.approx(power.rvalue**2)
    assert found["exponent"] == pytest.approx(power.slope)
    assert found["r2_steps"] == pytest.approx(exponential.rvalue**2)
    assert found["rate"] == pytest.approx(exponential.slope)


def test_a_power_law_and_an_exponential_are_told_apart_and_zeros_have_no_logarithm():
    power, exponential = fits({k: k**-4.0 for k in range(2, 50)}), fits({k: np.exp(-k / 3) for k in range(2, 50)})
    assert power["r2_log_steps"] == pytest.approx(1)
    assert power["exponent"] == pytest.approx(-4)
    assert power["r2_steps"] < 0.95
    assert exponential["r2_steps"] == pytest.approx(1)
    assert exponential["rate"] == pytest.approx(-1 / 3)
    with_zero = fits({**{k: k**-4.0 for k in range(2, 50)}, 50: 0.0})
    assert with_zero["r2_log_steps"] == pytest.approx(1)
    assert with_zero["fitted_up_to"] == 49


def test_the_oracle_takes_the_first_steps_that_meet_each_target(finding):
    curve = {row["steps"]: row["score"] for row in part(finding, "curve")}
    for target, cell in finding.numbers["budget"].items():
        assert cell["steps"] == min(k for k, score in curve.items() if score <= float(target))
        assert cell["score"] == pytest.approx(curve[cell["steps"]])


def test_a_target_that_no_schedule_reaches_has_no_steps(monkeypatch):
    profile = extract(ring(), 8, 30)
    least = min(profile.score_of_steps(build_schedule(profile, k).timesteps) for k in range(2, 31))
    assert least > 0
    monkeypatch.setattr("geosprint.paper.budget.TARGETS", (least / 2, least * 2))
    found = BUDGET.run(replace(TOY, steps=(4,), samples=10, repetitions=1))
    below, above = found.numbers["budget"].values()
    assert below == {"steps": None, "score": None, "settled": None}
    assert above["steps"] <= 30
    assert f"unreachable for {least / 2:g}" in found.verdict


@pytest.mark.parametrize("metric", ["rmse", "frechet_fine"])
def test_rank_correlations_are_those_of_the_rows(finding, metric):
    at_8 = [row for row in part(finding, "quality") if row["steps"] == 8]
    expected = spearmanr([row["score"] for row in at_8], [row[metric] for row in at_8]).statistic
    assert finding.numbers["over_schedules"]["8"][metric] == pytest.approx(expected)
    assert finding.numbers["over_schedules"]["8"]["schedules"] == len(at_8) == 10
    ours = [row for row in part(finding, "quality") if row["schedule"] == "geosprint"]
    expected = spearmanr([row["score"] for row in ours], [row[metric] for row in ours]).statistic
    assert finding.numbers["over_steps"][metric] == pytest.approx(expected)


def test_intervals_hold_the_correlation(finding):
    for found in finding.numbers["over_schedules"].values():
        assert -1 <= found["rmse_low"] <= found["rmse"] <= found["rmse_high"] <= 1


def test_steps_between_are_geometric_means():
    assert steps_between((20, 5, 10)) == [5, 7, 10, 14, 20]


def made_up(over_steps, over_schedules):
    ranks = [numbers_of("rmse", *found) for found in (over_steps, over_schedules)]
    return {"over_steps": ranks[0], "over_schedules": {"10": ranks[1]}}


def test_the_claims_can_hold_and_fail():
    straight = {"r2_log_steps": 0.999, "r2_steps": 0.99}
    assert word(BUDGET, "log-linearly", straight) == HOLDS
    assert word(BUDGET, "log-linearly", {**straight, "r2_steps": 0.9}) == IN_PART
    assert word(BUDGET, "log-linearly", {"r2_log_steps": 0.9, "r2_steps": 0.9}) == FAILS
    clear, weak, none = (0.9, 0.7, 1.0), (0.4, 0.1, 0.6), (0.3, -0.1, 0.5)
    assert word(BUDGET, "predicts quality", made_up(clear, clear)) == HOLDS
    assert word(BUDGET, "predicts quality", made_up(clear, weak)) == IN_PART
    assert word(BUDGET, "predicts quality", made_up(none, none)) == FAILS


def test_flows_are_ranked_without_leading_spacing():
    found = BUDGET.run(replace(TOY, model="other_models:flow_ring", steps=(4,)))
    names = {row["schedule"] for row in part(found, "quality")}
    assert "uniform-leading" not in names
    assert {"geosprint", "karras", "uniform-trailing"} <= names


def test_the_figure_is_drawn(finding):
    assert is_drawn(BUDGET.draw(finding))
