"""The first sentence: what so many steps are worth, won or lost."""

from __future__ import annotations

import numpy as np
import pytest

from geosprint.estimates import bootstrap_mean, uniform_steps_with
from geosprint.report.columns import Column, Entry
from geosprint.report.findings import Findings
from geosprint.report.headline import headline, headline_of

SCALES = np.random.default_rng(0).lognormal(size=30)


def law(steps: float) -> np.ndarray:
    return SCALES / steps


def column(steps: int = 12, measured=(12, 18, 24), **schedules: np.ndarray) -> Column:
    """A column of these errors; uniform spacings follow the law 1 / K at the measured numbers of steps."""
    uniform = {k: law(k) for k in measured}
    named = {"uniform-trailing": law(steps), **{name.replace("_", "-"): one for name, one in schedules.items()}}
    entries = [
        Entry(
            name,
            {"rmse": bootstrap_mean(e)},
            gap=bootstrap_mean(e - law(steps)),
            matched=uniform_steps_with(e, uniform),
        )
        for name, e in named.items()
    ]
    lowest_first = sorted(entries, key=lambda entry: entry.error.value)
    return Column(f"{steps} steps of ddim", "ddim", steps, "RMSE", len(SCALES), lowest_first)


def test_a_schedule_that_wins_is_told_in_uniform_steps_with_their_interval():
    found = headline_of(column(tuned=law(19)))
    assert found.sentence == "12 steps of tuned match 19.0 uniform steps"
    assert found.beside == "95 % interval 19.0 to 19.0; ddim, 30 samples from held-out noise."


def test_a_schedule_that_wins_by_chance_is_told_so():
    noise = np.random.default_rng(2).lognormal(sigma=0.8, size=30)
    lucky = law(12) * noise * (0.97 * law(12).mean() / (law(12) * noise).mean())
    found = headline_of(column(tuned=lucky))
    assert found.sentence.startswith("12 steps of tuned match 12.")
    assert found.beside.endswith("The gain may be chance.")


def test_an_end_of_the_interval_where_measuring_ended_may_lie_beyond():
    noisy = law(12) * np.random.default_rng(5).lognormal(sigma=1.0, size=30)
    found = headline_of(column(measured=(6, 12, 13), tuned=noisy * law(12.5).mean() / noisy.mean()))
    assert found.sentence == "12 steps of tuned match 12.5 uniform steps"
    assert "to 13 or more;" in found.beside


def test_a_schedule_that_loses_is_not_praised():
    found = headline_of(column(tuned=law(9), karras=law(10)))
    assert found.sentence == "No schedule has a lower error than 12 uniform steps"


def test_the_best_is_named_also_when_it_is_not_ours():
    assert headline_of(column(tuned=law(13), gits=law(15))).sentence == "12 steps of gits match 15.0 uniform steps"


def test_a_limit_does_not_compete():
    found = headline_of(column(tuned=law(13), **{"ld3_l2": law(20)}))
    assert found.sentence == "12 steps of tuned match 13.0 uniform steps"


def test_beyond_the_longest_uniform_spacing_only_a_bound_is_told():
    found = headline_of(column(tuned=law(48)))
    assert found.sentence == "12 steps of tuned have a lower error than 24 uniform steps"
    lower = bootstrap_mean(law(12) - law(48))
    expected = f"Error lower by {lower.value:.3g} than uniform-trailing, 95 % interval {lower.low:.3g} to "
    assert found.beside.startswith(expected)


def test_without_longer_uniform_spacings_the_ratio_is_told():
    found = headline_of(column(measured=(12,), tuned=law(18)))
    assert found.sentence == "12 steps of tuned have a 1.5× lower error than 12 uniform steps"


@pytest.mark.parametrize(
    ("worths", "chosen"),
    [
        ([(5, 7), (10, 13)], 1),  # both are known: the longer one
        ([(5, 7), (10, 300)], 0),  # a number says more than a bound
        ([(5, 300), (10, 300)], 1),
    ],
)
def test_the_column_that_says_most_is_chosen(worths, chosen):
    columns = [column(k, (5, 10, 20), tuned=law(worth)) for k, worth in worths]
    assert headline(Findings(), columns).column == chosen
