from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import difference, word
from scipy.linalg import sqrtm
from toy import TOY

from geosprint.errors import ScheduleError
from geosprint.models.exact import ring
from geosprint.noise import DiscreteVP
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.leading import LEADING, SPACINGS, STEPS, times_of
from geosprint.paper.measuring import Bench
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
    bench = Bench.of(TOY)
    fewer, more = (bench.sample(times_of("trailing", ring().noise, k)).errors for k in (25, 29))
    rise = finding.numbers["rises"]["trailing"]["rmse"]["25-29"]
    assert rise["value"] == pytest.approx((more - fewer).mean(), rel=1e-4)
    assert rise["share"] == pytest.approx((more - fewer).mean() / fewer.mean(), rel=1e-4)
    assert rise["high"] < 0
    late, moved = (bench.sample(times_of(s, ring().noise, 25)).errors for s in ("leading", "leading-from-noise"))
    excess = finding.numbers["excess"]["25"]["over_same_from_noise"]
    assert excess["value"] == pytest.approx((late - moved).mean(), abs=1e-7)


def made_up(**relative_rises):
    """Each spacing falls everywhere but by this share, with this interval, at one K."""
    falls = {**difference(-2, -1), "share": -0.1}
    rises = {spacing: {"rmse": {"25-29": falls, "29-34": falls}} for spacing in SPACINGS}
    for spacing, (share, low, high) in relative_rises.items():
        rises[spacing]["rmse"]["29-34"] = {"value": 5 * share, "low": 5 * low, "high": 5 * high, "share": share}
    return {"rises": rises}


def test_neither_chance_nor_a_trifle_is_a_rise():
    rise, chance, trifle = (0.12, 0.05, 0.2), (0.12, -0.1, 0.3), (0.005, 0.004, 0.006)
    assert word(LEADING, "gets worse", made_up(**dict.fromkeys(["leading", "trailing"], rise))) == IN_PART
    assert word(LEADING, "gets worse", made_up()) == FAILS
    assert word(LEADING, "gets worse", made_up(leading=chance, trailing=chance)) == FAILS
    assert word(LEADING, "gets worse", made_up(leading=trifle, trailing=trifle)) == FAILS
    everywhere = {f"{few}-{few + 1}": {**difference(1, 2), "share": 0.1} for few in range(3)}
    assert word(LEADING, "gets worse", {"rises": {"trailing": {"rmse": everywhere}}}) == HOLDS


@pytest.mark.parametrize(("ends", "said"), [((1, 2), HOLDS), ((-1, 1), FAILS), ((-2, -1), FAILS)])
def test_a_late_start_is_judged_by_moving_the_first_step_alone(ends, said):
    assert word(LEADING, "starting late", {"excess": {"25": {"over_same_from_noise": difference(*ends)}}}) == said


def test_a_flow_has_no_leading_spacing():
    with pytest.raises(ScheduleError, match="needs whole timesteps, which other_models:flow_ring has not"):
        LEADING.run(replace(TOY, model="other_models:flow_ring"))


def test_the_figure_is_drawn(finding):
    assert is_drawn(LEADING.draw(finding))
