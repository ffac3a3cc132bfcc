from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import numbers_of, word
from scipy import stats
from slow import most_pruned
from toy import TOY

from geosprint.extraction import extract
from geosprint.integrations.adapter import load_model
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.per_sample import (
    PER_SAMPLE,
    correlations_with_all,
    correlations_with_others,
    counts_at,
    rank_estimate,
)
from geosprint.sampling import record, sample
from geosprint.schedule import build_schedule


@pytest.fixture(scope="module")
def finding():
    return PER_SAMPLE.run(replace(TOY, trajectories=10))


def column(finding, name):
    return np.array([row[name] for row in finding.rows])


def test_there_is_a_row_for_every_sample(finding):
    assert [row["seed"] for row in finding.rows] == list(range(10))
    assert {tuple(row) for row in finding.rows} == {tuple(finding.rows[0])}


def test_a_lower_score_needs_more_steps(finding):
    counts = [column(finding, f"nfe_{target}") for target in ("0.01", "0.001", "0.0001")]
    assert (counts[0] <= counts[1]).all()
    assert (counts[1] <= counts[2]).all()
    assert counts[0].sum() < counts[2].sum()
    spread = finding.numbers["nfe_0.0001_largest_over_smallest"]
    assert spread == pytest.approx(counts[2].max() / counts[2].min())


def test_the_steps_needed_are_those_of_trying_every_threshold(finding):
    states = record(load_model("mixture"), [3], 30).states[0].double().numpy()
    kept = 31 - round(31 * most_pruned(states, 1e-3))
    # The clean end is no step; it may be kept or pruned.
    assert finding.rows[3]["nfe_0.001"] in (kept, kept - 1)
    assert finding.rows[3]["nfe_0.001"] == finding.numbers["kept"][3].count("1")


def test_the_clean_end_is_no_step_also_where_it_is_kept():
    points = np.column_stack([np.arange(10.0), np.zeros(10)])
    points[-1] = [9.0, 8.0]  # a straight line, and at its end a leap to the side
    points -= points.mean(axis=0)
    assert counts_at((points @ points.T)[None], 1e-3).tolist() == [2]


def test_errors_are_distances_of_ten_step_draws_from_the_ends_of_the_recorded_walks(finding):
    model = load_model("mixture")
    walks = record(model, range(10), 30)
    times = build_schedule(extract(model, 10, 30), 10).timesteps
    ends = np.stack([sample(model, times, [seed])[0].double().numpy() for seed in range(10)])
    expected = np.sqrt(((ends - walks.states[:, -1].double().numpy()) ** 2).mean(axis=1))
    np.testing.assert_allclose(column(finding, "error"), expected, rtol=1e-4)


def test_correlations_are_those_of_scipy(finding):
    kept = np.array([[letter == "1" for letter in row] for row in finding.numbers["kept"]], dtype=float)
    assert kept.shape == (10, 30)
    assert finding.rows[2]["correlation"] == pytest.approx(stats.pearsonr(kept[2], kept.mean(axis=0)).statistic)
    others = np.delete(kept, 2, axis=0).mean(axis=0)
    expected = stats.pearsonr(kept[2, 2:], others[2:]).statistic
    assert finding.rows[2]["correlation_with_others"] == pytest.approx(expected)


def test_prediction_is_the_rank_correlation_of_the_rows(finding):
    counts, errors = column(finding, "nfe_0.001"), column(finding, "error")
    expected = stats.spearmanr(counts, errors).statistic
    assert finding.numbers["count_predicts_error"] == pytest.approx(expected)
    by_score = stats.spearmanr(column(finding, "score_at_share"), errors).statistic
    assert finding.numbers["score_predicts_error"] == pytest.approx(by_score)


def test_what_rises_together_is_surely_predicted_and_what_does_not_is_not():
    random = np.random.default_rng(0)
    complexity = random.normal(size=60)
    assert rank_estimate(complexity, complexity + 0.3 * random.normal(size=60)).low > 0.5
    assert rank_estimate(complexity, -complexity).high < -0.9
    strangers = rank_estimate(complexity, random.normal(size=60))
    assert strangers.low < 0 < strangers.high


def test_samples_that_have_nothing_in_common_correlate_with_all_but_not_with_the_others():
    profile = extract(load_model("mixture"), 10, 60)
    kept = np.random.default_rng(3).uniform(size=(10, 61)) < 0.2
    kept[:, :2] = True
    unrelated = replace(profile, kept=kept)
    assert correlations_with_all(unrelated).mean() > 0.3  # each is a tenth of the mean, and all share the window
    assert abs(correlations_with_others(unrelated).mean()) < 0.15


def test_the_claims_can_hold_and_fail():
    def spreads(spread):
        return {f"nfe_{target}_largest_over_smallest": spread for target in ("0.01", "0.001", "0.0001")}

    for spread, said in ((1.3, HOLDS), (1.43, HOLDS), (2.0, IN_PART), (3.0, FAILS)):
        assert word(PER_SAMPLE, "1.2 to 1.4", spreads(spread)) == said
    for related, said in ((0.2, HOLDS), (0.37, HOLDS), (0.6, IN_PART), (0.8, FAILS)):
        found = numbers_of("correlation", related, related - 0.02, related + 0.02)
        assert word(PER_SAMPLE, "0.37", found) == said
    for key in ("predicts", "foretells"):  # the second is that of findings by earlier versions
        for low, said in ((0.2, HOLDS), (-0.1, FAILS), (-0.7, FAILS)):
            found = {}
            for name in ("count", "score"):
                found |= numbers_of(f"{name}_{key}_error", low + 0.2, low, low + 0.3)
            assert word(PER_SAMPLE, "predicts its error", found) == said


def test_the_figure_is_drawn(finding):
    assert is_drawn(PER_SAMPLE.draw(finding))
