from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import difference, word
from toy import TOY

from geosprint.baselines import uniform_in_log_snr
from geosprint.estimates import endpoint_errors
from geosprint.models.exact import ring
from geosprint.paper.blend import BLEND, BLENDS
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.sampling import sample
from geosprint.teacher import fine_timesteps


@pytest.fixture(scope="module")
def finding():
    return BLEND.run(TOY)


@pytest.fixture(scope="module")
def log_snr_errors():
    seeds = [seed for r in range(2) for seed in TOY.fresh_seeds(r)]
    fine = sample(ring(), fine_timesteps(ring().noise, 20), seeds, "heun")
    uniform = np.round(1000 - np.arange(8) * 125.0) - 1
    return [
        endpoint_errors(sample(ring(), times, seeds), fine) for times in (uniform_in_log_snr(ring().noise, 8), uniform)
    ]


def test_the_papers_blends_and_steps_of_a_fifth_are_tried():
    assert set(BLENDS) == {0, 0.3, 0.5, 0.6, 0.7, 1} | {0, 0.2, 0.4, 0.6, 0.8, 1}


def test_rows_are_every_blend_at_every_number_of_steps_and_uniform_spacings(finding):
    assert len({tuple(row) for row in finding.rows}) == 1
    places = [(row["schedule"], row["blend"], row["steps"]) for row in finding.rows]
    assert len(places) == len(set(places)) == 2 * (len(BLENDS) + 2)
    assert ("uniform-leading", None, 8) in places


def test_blend_zero_is_the_known_spacing_uniform_in_log_snr(finding, log_snr_errors):
    (row,) = [r for r in finding.rows if (r["blend"], r["steps"]) == (0.0, 8)]
    assert row["rmse"] == pytest.approx(log_snr_errors[0].mean(), rel=1e-4)
    gap = finding.numbers["rmse"]["8"]["log_snr_minus_uniform"]["uniform-trailing"]
    assert gap["value"] == pytest.approx((log_snr_errors[0] - log_snr_errors[1]).mean(), rel=1e-3)


@pytest.mark.parametrize("metric", ["rmse", "frechet_fine"])
def test_the_best_blend_has_the_smallest_mean_and_chance_decides_who_is_beside_it(finding, metric):
    for k, cell in finding.numbers[metric].items():
        means = {row["blend"]: row[metric] for row in finding.rows if row["steps"] == int(k)}
        means.pop(None)
        assert means[cell["best"]] == min(means.values())
        beside = {float(b) for b, gap in cell["behind_best"].items() if gap["low"] <= 0}
        assert set(cell["within_chance"]) == beside | {cell["best"]}
        for b, gap in cell["behind_best"].items():
            if metric == "rmse":
                assert gap["value"] == pytest.approx(means[float(b)] - means[cell["best"]])


def made_up(best, behind, to_uniform):
    """One K: the best blend, how far all others are behind it, and log-SNR's gap to a uniform spacing."""
    others = {f"{blend:g}": difference(*behind) for blend in BLENDS if blend != best}
    cell = {"best": best, "behind_best": others, "log_snr_minus_uniform": {"uniform-trailing": difference(*to_uniform)}}
    return {"frechet_fine": {"20": cell}}


def test_the_claims_can_hold_and_fail():
    near, far = (-1, 1), (1, 2)
    assert word(BLEND, "broad optimum", made_up(0.6, far, far)) == HOLDS
    assert word(BLEND, "broad optimum", made_up(1.0, near, far)) == HOLDS
    assert word(BLEND, "broad optimum", made_up(1.0, far, far)) == FAILS
    assert word(BLEND, "neither", made_up(0.6, far, far)) == HOLDS
    assert word(BLEND, "neither", made_up(0.6, near, far)) == FAILS
    assert word(BLEND, "neither", made_up(1.0, far, far)) == IN_PART
    assert word(BLEND, "log-SNR alone", made_up(0.6, far, far)) == HOLDS
    assert word(BLEND, "log-SNR alone", made_up(0.6, far, near)) == FAILS


def test_flows_are_compared_with_the_uniform_spacing_they_have():
    found = BLEND.run(replace(TOY, model="other_models:flow_ring", steps=(4,)))
    assert {row["schedule"] for row in found.rows} == {"geosprint", "uniform-trailing"}


def test_the_figure_is_drawn(finding):
    assert is_drawn(BLEND.draw(finding))
