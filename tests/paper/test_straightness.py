from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import numbers_of, word
from slow import least_score, most_pruned
from toy import TOY

from geosprint.integrations.adapter import load_model
from geosprint.models.exact import ring
from geosprint.noise import Flow
from geosprint.paper.claims import FAILS, HOLDS, IN_PART, UNTESTED
from geosprint.paper.straightness import STRAIGHTNESS, numbers_from, solvers_for
from geosprint.sampling import record


@pytest.fixture(scope="module")
def finding():
    return STRAIGHTNESS.run(replace(TOY, trajectories=6))


def test_there_is_a_row_for_every_seed_of_every_solver(finding):
    places = [(row["solver"], row["seed"]) for row in finding.rows]
    assert places == [(solver, seed) for solver in ("ddpm", "ddim", "dpmpp-2m", "heun") for seed in range(6)]
    assert {tuple(row) for row in finding.rows} == {tuple(finding.rows[0])}


@pytest.mark.parametrize("solver", ["ddpm", "heun"])
def test_scores_and_shares_are_those_of_trying_every_threshold(finding, solver):
    states = record(load_model("mixture"), [4], 30, solver).states[0].double().numpy()
    row = next(row for row in finding.rows if (row["solver"], row["seed"]) == (solver, 4))
    assert row["score_at_share"] == pytest.approx(least_score(states, 0.8), rel=1e-2)
    assert row["share_at_score"] == pytest.approx(most_pruned(states, 1e-3))


def test_all_are_pruned_by_at_least_the_share(finding):
    assert all(row["share_reached"] >= 0.8 for row in finding.rows)


def test_the_ratio_is_that_of_the_means_and_its_interval_holds_it(finding):
    means = {
        solver: np.mean([row["score_at_share"] for row in finding.rows if row["solver"] == solver])
        for solver in ("ddpm", "ddim")
    }
    assert finding.numbers["ddpm_over_ddim"] == pytest.approx(means["ddpm"] / means["ddim"])
    assert finding.numbers["ddpm_over_ddim_low"] < finding.numbers["ddpm_over_ddim"]
    assert finding.numbers["ddpm_over_ddim"] < finding.numbers["ddpm_over_ddim_high"]


def test_the_same_setting_finds_the_same(finding):
    assert STRAIGHTNESS.run(replace(TOY, trajectories=6)) == finding


def test_a_flow_has_no_ancestral_sampling_and_no_verdict_on_it(finding):
    assert solvers_for(ring(noise=Flow())) == ["ddim", "dpmpp-2m", "heun"]
    without = numbers_from([row for row in finding.rows if row["solver"] != "ddpm"])
    assert word(STRAIGHTNESS, "450 times", without) == UNTESTED


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (430, 300, 500, HOLDS),
        (900, 600, 999, HOLDS),
        (230, 200, 300, IN_PART),
        (100, 90, 110, FAILS),
        (500, 0.9, 999, FAILS),
    ],
)
def test_the_drop_is_judged_by_its_size_and_by_its_interval(ratio, low, high, said):
    assert word(STRAIGHTNESS, "450 times", numbers_of("ddpm_over_ddim", ratio, low, high)) == said


def test_straighter_trajectories_must_surely_be_more_compressible():
    assert word(STRAIGHTNESS, "compressible", numbers_of("ddim_prunes_more", 0.5, 0.4, 0.6)) == HOLDS
    assert word(STRAIGHTNESS, "compressible", numbers_of("ddim_prunes_more", 0.1, -0.1, 0.3)) == FAILS


def test_the_figure_is_drawn(finding):
    assert is_drawn(STRAIGHTNESS.draw(finding))
