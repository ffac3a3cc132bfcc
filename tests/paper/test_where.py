from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import numbers_of, word
from toy import TOY

from geosprint.extraction import extract
from geosprint.integrations.adapter import load_model
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.where import WHERE, zones_of


@pytest.fixture(scope="module")
def profile():
    return extract(load_model("mixture"), 8, 30)


@pytest.fixture(scope="module")
def finding():
    return WHERE.run(TOY)


def rows_of(finding, what, count, steps=None):
    return [row for row in finding.rows if (row["what"], row["count"], row["steps"]) == (what, count, steps)]


def test_rows_have_one_set_of_keys(finding):
    assert {tuple(row) for row in finding.rows} == {("what", "count", "steps", "t", "retention", "share")}


def test_the_curves_are_the_shares_of_trajectories_that_keep_each_step(finding, profile):
    counted = [sum(bool(kept[i]) for kept in profile.kept) / 8 for i in range(30)]
    assert [row["retention"] for row in rows_of(finding, "retention", "literal")] == counted
    assert [row["retention"] for row in rows_of(finding, "retention", "free")] == [counted[2], counted[2], *counted[2:]]
    assert [row["t"] for row in rows_of(finding, "retention", "free")] == profile.timesteps[:-1].tolist()


def test_zone_means_and_ratios_are_those_of_plain_counting(finding, profile):
    kept = {"early": [], "middle": [], "late": []}
    for t, column in zip(profile.timesteps[:-1], profile.kept[:, :-1].T, strict=True):
        kept["late" if t / 999 < 0.2 else "early" if t / 999 > 0.8 else "middle"] += column.tolist()
    means = {zone: np.mean(column) for zone, column in kept.items()}
    for zone, mean in means.items():
        assert finding.numbers[f"{zone}_literal"] == pytest.approx(mean)
    middle = means["middle"] or 1 / len(kept["middle"])
    assert finding.numbers["late_over_middle_literal"] == pytest.approx(means["late"] / middle)
    retained = sum(map(sum, kept.values()))
    assert finding.numbers["late_share_of_retained_literal"] == pytest.approx(sum(kept["late"]) / retained)


def test_without_the_forced_window_only_the_early_zone_loses(finding, profile):
    numbers, early = finding.numbers, int((profile.timesteps[:-1] / 999 > 0.8).sum())
    lost = 2 * (1 - profile.kept[:, 2].mean()) / early
    assert lost > 0.1
    assert numbers["early_literal"] - numbers["early_free"] == pytest.approx(lost)
    assert (numbers["middle_literal"], numbers["late_literal"]) == (numbers["middle_free"], numbers["late_free"])


def test_the_forced_window_takes_the_value_of_the_first_free_step(profile):
    kept = np.zeros((8, 31), dtype=bool)
    kept[:, :2], kept[:5, 2], kept[:, 4] = True, True, True
    bent = replace(profile, kept=kept)
    assert bent.retention[:4].tolist() == [1, 1, 5 / 8, 0]
    assert bent.free_retention[:4].tolist() == [5 / 8, 5 / 8, 5 / 8, 0]
    assert bent.free_kept.shape == (8, 30)


@pytest.mark.parametrize("count", ["literal", "free"])
@pytest.mark.parametrize("steps", [10, 20, 50])
def test_chosen_steps_fall_and_are_counted_up(finding, count, steps):
    rows = rows_of(finding, "step", count, steps)
    times = np.array([row["t"] for row in rows])
    assert len(rows) == steps
    assert (np.diff(times) < 0).all()
    assert [row["share"] for row in rows] == pytest.approx([(i + 1) / steps for i in range(steps)])


def test_borders_belong_to_the_middle():
    zones = zones_of(np.array([0.1, 0.2, 0.5, 0.8, 0.9]))
    assert zones["late"].tolist() == [True, False, False, False, False]
    assert zones["middle"].tolist() == [False, True, True, True, False]
    assert zones["early"].tolist() == [False, False, False, False, True]


def ratios(early, late):
    """Both ends over the middle, as the paper counts and without the forced window."""
    found = {}
    for count in ("literal", "free"):
        for end, value in (("early", early), ("late", late)):
            found |= numbers_of(f"{end}_over_middle_{count}", value, value - 0.1, value + 0.1)
    return found


@pytest.mark.parametrize(("late", "said"), [(2.0, HOLDS), (3.0, HOLDS), (1.5, IN_PART), (1.05, FAILS), (0.5, FAILS)])
def test_the_late_zone_is_held_against_twice_the_middle(late, said):
    assert word(WHERE, "2 times as often", ratios(1.0, late)) == said


def test_a_peak_at_one_end_is_none_at_both():
    assert word(WHERE, "both ends", ratios(1.5, 2.0)) == HOLDS
    assert word(WHERE, "both ends", ratios(0.9, 2.0)) == FAILS
    forced_alone = ratios(1.5, 2.0) | numbers_of("early_over_middle_free", 0.1, 0.0, 0.2)
    assert word(WHERE, "both ends", forced_alone) == IN_PART


@pytest.mark.parametrize(("share", "said"), [(0.5, HOLDS), (0.7, HOLDS), (0.36, IN_PART), (0.19, FAILS)])
def test_half_of_what_is_retained_is_held_against_the_fifth_that_chance_gives(share, said):
    found = numbers_of("late_share_of_retained_literal", share, share - 0.01, share + 0.01)
    assert word(WHERE, "50 % of retained", found) == said


def test_the_figure_is_drawn(finding):
    assert is_drawn(WHERE.draw(finding))
