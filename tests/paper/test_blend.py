from dataclasses import replace

import numpy as np
import pytest
from drawn import are_drawn

from geosprint.baselines import uniform_in_log_snr
from geosprint.metrics.estimates import endpoint_errors
from geosprint.models.exact import ring
from geosprint.paper.base import TOY
from geosprint.paper.blend import BLEND, BLENDS, plot, verdict
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
    best = min(r["rmse"] for r in finding.rows if r["steps"] == 8 and r["blend"] is not None)
    gap = finding.numbers["rmse"]["8"]["best_minus_uniform"]["uniform-trailing"]
    assert gap["value"] == pytest.approx(best - log_snr_errors[1].mean(), rel=1e-3)


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


def made_up(best, within, gap=-1.0):
    uniform = {"uniform-trailing": {"value": gap, "low": gap - 0.5, "high": gap + 0.5}}
    cell = {"best": best, "within_chance": within, "best_minus_uniform": uniform, "log_snr_minus_uniform": uniform}
    return {"rmse": {"20": cell}, "frechet_fine": {"20": cell}}


def test_the_verdict_can_say_either():
    yes, no = verdict(made_up(0.6, [0.5, 0.6, 0.7])), verdict(made_up(1.0, [0.8, 1.0]))
    assert "best blend is 0.6 at K = 20 (within chance: 0.5, 0.6 and 0.7)" in yes
    assert "0.5 to 0.7 is within chance of it at 1 of 1 K" in yes
    assert "log-SNR alone is worse at every K and curvature alone is worse at every K" in yes
    assert "within chance of it at 0 of 1 K" in no
    assert "curvature alone is as good at K = 20" in no
    assert "log-SNR alone is farther than a uniform spacing at no K, and even the best blend is at no K" in yes
    beaten = verdict(made_up(0.6, [0.6], gap=1.0))
    assert "farther than a uniform spacing at K = 20, and even the best blend is at K = 20" in beaten
    assert "no other within chance" in verdict(made_up(0.0, [0.0]))
    assert "log-SNR alone is as good at K = 20" in verdict(made_up(0.0, [0.0]))


def test_flows_are_compared_with_the_uniform_spacing_they_have():
    found = BLEND.run(replace(TOY, model="other_models:flow_ring", steps=(4,)))
    assert {row["schedule"] for row in found.rows} == {"geosprint", "uniform-trailing"}


def test_the_figure_is_drawn(finding, tmp_path):
    assert are_drawn(plot(finding, tmp_path / "figure"))
