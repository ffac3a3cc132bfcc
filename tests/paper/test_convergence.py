import numpy as np
import pytest
from drawn import is_drawn
from judging import word
from scipy import stats
from toy import TOY

from geosprint.integrations.adapter import load_model
from geosprint.paper.claims import FAILS, HOLDS, IN_PART, UNTESTED
from geosprint.paper.convergence import CONVERGENCE, agreement_of, sizes_for
from geosprint.profile import agreement
from geosprint.schedule import blended_density, quantile_times


@pytest.fixture(scope="module")
def finding():
    return CONVERGENCE.run(TOY)


@pytest.fixture(scope="module")
def profile():
    return TOY.extract(load_model("mixture"))


def test_rows_are_of_growing_subsets_and_then_of_finer_recordings(finding):
    assert {tuple(row) for row in finding.rows} == {
        ("axis", "size", "against", "subset", "correlation", "jaccard", "fuzzy_jaccard")
    }
    places = {(row["axis"], row["size"], row["against"]) for row in finding.rows}
    against_all = {("B", size, "all") for size in (1, 2, 4, 6)}
    assert places == against_all | {("B", size, "others") for size in (1, 2, 4)} | {
        ("N", 7, "finest"),
        ("N", 15, "finest"),
    }
    assert sizes_for(100) == [12, 25, 50, 75]


def near_steps(one, other, within):
    return sum(any(abs(s - t) <= within for t in other) for s in one)


@pytest.mark.parametrize(("size", "subset"), [(4, 3), (2, 0), (2, 5)])
def test_a_cell_is_what_plain_code_makes_of_its_subset(finding, profile, size, subset):
    shuffled = np.random.default_rng([0, size, subset]).permutation(8)
    ways = []
    for rows in (shuffled[:size], shuffled[size : 2 * size]):
        counts = [sum(bool(profile.kept[row][i]) for row in rows) / size for i in range(30)]
        ways.append(np.array([counts[2], counts[2], *counts[2:]]))
    noise = profile.noise
    densities = (blended_density(way, profile.timesteps[:-1], noise, 0.6) for way in ways)
    one, other = ({int(t) for t in quantile_times(density, 8, noise)} for density in densities)
    row = next(row for row in finding.rows if (row["size"], row["against"], row["subset"]) == (size, "others", subset))
    assert row["correlation"] == pytest.approx(stats.pearsonr(*ways).statistic)
    assert row["jaccard"] == pytest.approx(len(one & other) / len(one | other))
    near = near_steps(one, other, 5)
    assert min(np.diff(sorted(one)).min(), np.diff(sorted(other)).min()) > 10  # so that no step has two neighbours
    assert row["fuzzy_jaccard"] == pytest.approx(near / (16 - near))


def test_steps_are_the_same_up_to_five_timesteps_apart(finding, profile):
    times = profile.timesteps[:-1]
    late, later = (np.where(np.arange(30) < cut, 0.1, 0.9) for cut in (20, 22))
    one, other = (
        quantile_times(blended_density(w, times, profile.noise, 0.6), 8, profile.noise) for w in (late, later)
    )
    near, nearer, farther = (near_steps(one, other, within) for within in (5, 2, 20))
    assert nearer < near < farther
    found = agreement(late, later, times, profile.noise, 8)
    assert found.fuzzy_jaccard == pytest.approx(near / (16 - near))


def test_a_profile_agrees_with_itself(profile):
    found = agreement_of(profile, profile, 8)
    assert [found.correlation, found.jaccard, found.fuzzy_jaccard] == pytest.approx([1, 1, 1])


def test_a_coarser_profile_of_the_same_curve_agrees(profile):
    times, curve = profile.timesteps[:-1], np.linspace(0.1, 0.9, 30) ** 2
    found = agreement(curve, 0.5 * curve, times, profile.noise, 8)
    assert found.correlation == pytest.approx(1)
    assert found.jaccard == 1  # retention is a density: its scale says nothing
    opposite = agreement(curve, curve[::-1], times, profile.noise, 8)
    assert opposite.correlation < 0
    assert opposite.fuzzy_jaccard < 0.7


def test_more_trajectories_agree_better_with_all(finding):
    means = [
        np.mean([row["correlation"] for row in finding.rows if (row["size"], row["against"]) == (size, "all")])
        for size in (1, 6)
    ]
    assert means[1] > means[0]
    assert finding.numbers["correlation_three_quarters"] == pytest.approx(means[1])
    assert finding.numbers["correlation_disjoint_halves"] < means[1]


def test_the_claims_can_hold_and_fail():
    def numbers(three_quarters, halves=None):
        measures = ("fuzzy_jaccard", "correlation")
        found = {f"{measure}_three_quarters": three_quarters for measure in measures}
        return found | {f"{measure}_disjoint_halves": halves for measure in measures}

    for text in ("fuzzy Jaccard 0.84", "correlates 0.86"):
        assert word(CONVERGENCE, text, numbers(0.9)) == HOLDS
        assert word(CONVERGENCE, text, numbers(0.5)) == IN_PART
        assert word(CONVERGENCE, text, numbers(0.2)) == FAILS
    assert word(CONVERGENCE, "no trajectory", numbers(0.9, 0.89)) == HOLDS
    assert word(CONVERGENCE, "no trajectory", numbers(0.9, 0.6)) == IN_PART
    assert word(CONVERGENCE, "no trajectory", numbers(0.9)) == UNTESTED


def test_the_figure_is_drawn(finding):
    assert is_drawn(CONVERGENCE.draw(finding))
