import copy
from dataclasses import replace

import numpy as np
import pytest
from drawn import are_drawn
from scipy.linalg import sqrtm

from geosprint.errors import ScheduleError
from geosprint.models.exact import ring
from geosprint.noise import DiscreteVP
from geosprint.paper.base import TOY
from geosprint.paper.leading import LEADING, SPACINGS, STEPS, plot, times_of, verdict
from geosprint.paper.measuring import Yardstick
from geosprint.sampling import sample


@pytest.fixture(scope="module")
def finding():
    return LEADING.run(TOY)


def test_leading_starts_where_the_papers_steps_do():
    noise = DiscreteVP.named()
    starts = [times_of("leading", noise, k)[0] for k in (29, 34, 39, 44)]
    assert starts == [952, 957, 950, 946]
    for k in STEPS:
        late, moved = times_of("leading", noise, k), times_of("leading-from-noise", noise, k)
        assert (moved[0], len(moved)) == (999, k)
        np.testing.assert_array_equal(late[1:], moved[1:])
        assert times_of("trailing", noise, k)[0] == 999


def test_rows_are_every_spacing_at_every_number_of_steps(finding):
    assert len({tuple(row) for row in finding.rows}) == 1
    assert [(row["spacing"], row["steps"]) for row in finding.rows] == [(s, k) for s in SPACINGS for k in STEPS]
    assert {row["steps"] for row in finding.rows if row["divides"]} == {25, 40, 50}
    late = next(row for row in finding.rows if (row["spacing"], row["steps"]) == ("leading", 44))
    assert (late["start"], late["skipped"], late["nfe"]) == (946, 53, 44)
    for metric in ("rmse", "frechet_fine", "frechet_reference"):
        assert late[f"{metric}_low"] < late[metric] < late[f"{metric}_high"]


def test_the_papers_reference_is_fifty_leading_steps(finding):
    seeds = [seed for r in range(2) for seed in TOY.fresh_seeds(r)]
    made, reference = (sample(ring(), np.arange(k)[::-1] * (1000.0 // k), seeds).double().numpy() for k in (29, 50))
    one, other = np.cov(made.T), np.cov(reference.T)
    shift = ((made.mean(0) - reference.mean(0)) ** 2).sum()
    expected = shift + np.trace(one + other - 2 * np.real(sqrtm(one @ other)))
    found = {row["steps"]: row["frechet_reference"] for row in finding.rows if row["spacing"] == "leading"}
    assert found[29] == pytest.approx(expected, rel=1e-2)
    assert found[50] == pytest.approx(0, abs=1e-9)


def test_rises_are_more_steps_less_fewer_as_a_share_of_fewer(finding):
    yardstick = Yardstick.of(TOY)
    fewer, more = (yardstick.judge(times_of("trailing", ring().noise, k)).errors for k in (25, 29))
    rise = finding.numbers["rises"]["trailing"]["rmse"]["25-29"]
    assert rise["value"] == pytest.approx((more - fewer).mean(), rel=1e-4)
    assert rise["share"] == pytest.approx((more - fewer).mean() / fewer.mean(), rel=1e-4)
    assert rise["high"] < 0
    late, moved = (yardstick.judge(times_of(s, ring().noise, 25)).errors for s in ("leading", "leading-from-noise"))
    excess = finding.numbers["excess"]["25"]["over_same_from_noise"]
    assert excess["value"] == pytest.approx((late - moved).mean(), abs=1e-7)


def changed(finding, spacing, metric, gap):
    numbers = copy.deepcopy(finding.numbers)
    for gaps in numbers["rises"].values():
        for metrics in gaps.values():
            for place in metrics:
                metrics[place] = {"value": -1.0, "low": -2.0, "high": -0.5, "share": -0.1}
    if spacing:
        numbers["rises"][spacing][metric]["39-40"] = gap
    return numbers


RISE = {"value": 1.0, "low": 0.5, "high": 2.0, "share": 0.12}


def test_the_verdict_blames_the_start_only_if_nothing_else_rises(finding):
    explained = verdict(changed(finding, "leading", "rmse", RISE))
    assert "Leading spacing rises at K = 39-40 (by 12%) by RMSE" in explained
    assert "The late start explains it" in explained
    numbers = changed(finding, "leading", "rmse", RISE)
    numbers["rises"]["leading-from-noise"]["rmse"]["39-40"] = RISE
    assert "A late start alone is not the reason" in verdict(numbers)
    numbers["rises"]["trailing"]["frechet_fine"]["25-29"] = RISE
    assert "a late start is not the whole reason" in verdict(numbers)
    assert "a late start is not the whole reason" in verdict(changed(finding, "trailing", "rmse", RISE))


def test_the_verdict_takes_neither_chance_nor_a_trifle_for_a_rise(finding):
    none = "Uniform spacing does not get worse with more steps here by more than chance"
    assert none in verdict(changed(finding, None, "", {}))
    within_chance = verdict(changed(finding, "leading", "rmse", {**RISE, "low": -0.1}))
    assert none in within_chance
    assert "Leading spacing rises at K = 39-40 (by 12%, within chance) by RMSE, nowhere by Fréchet" in within_chance
    assert none in verdict(changed(finding, "leading", "rmse", {**RISE, "share": 0.005}))
    assert none not in verdict(changed(finding, "leading", "frechet_reference", RISE))


def test_a_flow_has_no_leading_spacing():
    with pytest.raises(ScheduleError, match="needs whole timesteps, which other_models:flow_ring has not"):
        LEADING.run(replace(TOY, model="other_models:flow_ring"))


def test_the_figure_is_drawn(finding, tmp_path):
    assert are_drawn(plot(finding, tmp_path / "figure"))
