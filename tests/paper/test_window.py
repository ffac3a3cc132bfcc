from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import difference, word
from toy import TOY

from geosprint.errors import ScheduleError
from geosprint.extraction import extract
from geosprint.models.exact import digits
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.measuring import Bench
from geosprint.paper.window import WINDOW
from geosprint.profile import Settings
from geosprint.sampling import record
from geosprint.schedule import build_schedule
from references import geometry

DIGITS = replace(TOY, model="digits", steps=(4, 6))


@pytest.fixture(scope="module")
def finding():
    return WINDOW.run(DIGITS)


def cells(finding, window, levels):
    return [row for row in finding.rows if (row["window"], row["levels"]) == (window, levels)]


def test_rows_are_every_window_and_every_hierarchy_at_every_number_of_steps(finding):
    assert len({tuple(row) for row in finding.rows}) == 1
    tests = [(2, 1), (3, 1), (4, 1), (2, 2), (2, 3)]
    assert [(row["window"], row["levels"], row["steps"]) for row in finding.rows] == [
        (*test, k) for test in tests for k in (4, 6)
    ]
    assert list(finding.numbers["pruned_share"]) == ["k = 2", "k = 3", "k = 4", "levels 1-2", "levels 1-3"]


@pytest.mark.parametrize("window", [2, 3])
def test_pruned_shares_are_those_of_algorithm_2_at_the_thresholds_found(finding, window):
    profile = extract(digits(), 8, 30, settings=Settings(window=window))
    states = record(digits(), range(8), 30).states.double().numpy()
    spread = states.std(axis=1, keepdims=True)
    states = states / np.where(spread > 1e-6 * spread.max(axis=-1, keepdims=True), spread, 1)
    pruned = [geometry.prune(one, window, t) for one, t in zip(states, profile.thresholds, strict=True)]
    shares = [len(found) / len(one) for found, one in zip(pruned, states, strict=True)]
    scores = [geometry.projection_score(found, one) for found, one in zip(pruned, states, strict=True)]
    row = cells(finding, window, 1)[0]
    assert row["pruned_share"] == pytest.approx(np.mean(shares), abs=0.01)
    assert row["pruned_share_std"] == pytest.approx(np.std(shares, ddof=1), abs=0.01)
    assert row["score"] == pytest.approx(float(np.mean(scores)), rel=0.1)
    assert row["score"] <= 1e-3


def test_a_hierarchy_prunes_at_least_as_much_as_its_first_level(finding):
    shares = finding.numbers["pruned_share"]
    assert shares["k = 2"] <= shares["levels 1-2"] <= shares["levels 1-3"]


def test_the_error_and_the_move_are_those_of_the_schedule_that_the_window_gives(finding):
    bench = Bench.of(DIGITS)
    paper, wider = (
        build_schedule(extract(digits(), 8, 30, settings=Settings(window=window)), 6).timesteps for window in (2, 3)
    )
    row = next(row for row in cells(finding, 3, 1) if row["steps"] == 6)
    errors = [bench.sample(times).errors for times in (wider, paper)]
    assert row["rmse"] == pytest.approx(errors[0].mean(), rel=1e-5)
    gap = finding.numbers["gap"]["rmse"]["k = 3"]["6"]
    assert gap["value"] == pytest.approx((errors[0] - errors[1]).mean(), rel=1e-4)
    assert row["most_moved"] == pytest.approx(np.abs(wider - paper).max())
    common = sum(np.abs(paper - t).min() <= 5 for t in wider)
    assert row["fuzzy_jaccard"] == pytest.approx(common / (12 - common))
    unmoved = next(row for row in cells(finding, 2, 1) if row["steps"] == 6)
    assert (unmoved["most_moved"], unmoved["fuzzy_jaccard"]) == (0, 1)


def test_the_claim_can_hold_and_fail():
    def numbers(*gaps):
        return {"gap": {"rmse": {"k = 3": {str(k): difference(*ends) for k, ends in enumerate(gaps)}}}}

    better, worse, chance = (-2, -1), (1, 2), (-1, 1)
    assert word(WINDOW, "k > 2", numbers(worse, chance)) == HOLDS
    assert word(WINDOW, "k > 2", numbers(chance, better)) == IN_PART
    assert word(WINDOW, "k > 2", numbers(better, better)) == FAILS


def test_a_model_of_two_dimensions_has_no_plane_to_test():
    with pytest.raises(ScheduleError, match="3 dimensions or more, mixture has 2"):
        WINDOW.run(TOY)


def test_the_figure_is_drawn(finding):
    assert is_drawn(WINDOW.draw(finding))
