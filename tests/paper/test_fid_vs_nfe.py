from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import difference, word
from scipy.linalg import sqrtm
from toy import TOY

from geosprint.models.exact import ring
from geosprint.paper.base import Setting
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.fid_vs_nfe import FID_VS_NFE, steps_for_distance
from geosprint.sampling import sample
from geosprint.teacher import fine_timesteps

KEYS = (
    "solver", "schedule", "steps", "nfe", "start", "rmse", "rmse_std",
    "frechet_fine", "frechet_fine_std", "frechet_data", "frechet_data_std",
    "frechet_reference", "frechet_reference_std",
)  # fmt: skip


@pytest.fixture(scope="module")
def finding():
    return FID_VS_NFE.run(TOY)


def frechet(one, other):
    one, other = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    first, second = np.cov(one.T), np.cov(other.T)
    return ((one.mean(0) - other.mean(0)) ** 2).sum() + np.trace(first + second - 2 * np.real(sqrtm(first @ second)))


def test_rows_cover_every_solver_and_schedule_and_uniform_ones_a_third_more_steps(finding):
    assert {tuple(row) for row in finding.rows} == {KEYS}
    places = {(row["solver"], row["schedule"], row["steps"]) for row in finding.rows}
    uniform = {("ddim", f"uniform-{kind}", k) for kind in ("leading", "trailing", "linspace") for k in (4, 8, 11)}
    others = [("ddim", "geosprint"), ("ddim", "quadratic"), ("dpmpp-2m", "uniform-trailing"), ("dpmpp-2m", "logsnr")]
    assert places == uniform | {(*line, k) for line in others for k in (4, 8)}
    assert len(finding.rows) == len(places)


def test_a_cell_is_the_mean_distance_of_two_sets_of_samples(finding):
    (row,) = [r for r in finding.rows if (r["schedule"], r["steps"]) == ("uniform-linspace", 8)]
    times = np.round(np.linspace(999, 0, 8))
    distances = []
    for repetition in range(2):
        seeds = TOY.fresh_seeds(repetition)
        fine = sample(ring(), fine_timesteps(ring().noise, 20), seeds, "heun")
        distances.append(frechet(sample(ring(), times, seeds), fine))
    assert row["frechet_fine"] == pytest.approx(np.mean(distances), rel=1e-3)
    assert row["frechet_fine_std"] == pytest.approx(np.std(distances, ddof=1), rel=1e-2)


def test_the_papers_protocol_measures_the_distance_to_fifty_leading_steps(finding):
    (row,) = [r for r in finding.rows if (r["schedule"], r["steps"]) == ("uniform-linspace", 8)]
    times, fifty = np.round(np.linspace(999, 0, 8)), np.arange(50)[::-1] * 20
    seeds = [TOY.fresh_seeds(repetition) for repetition in range(2)]
    distances = [frechet(sample(ring(), times, some), sample(ring(), fifty, some)) for some in seeds]
    assert row["frechet_reference"] == pytest.approx(np.mean(distances), rel=1e-3)
    assert row["frechet_reference_std"] == pytest.approx(np.std(distances, ddof=1), rel=1e-2)


def test_gaps_have_the_sign_of_the_difference_of_rows(finding):
    mean = {(row["schedule"], row["steps"]): row["frechet_fine"] for row in finding.rows if row["solver"] == "ddim"}
    for name, by_k in finding.numbers["frechet_fine"]["gap"].items():
        for k, gap in by_k.items():
            expected = mean["geosprint", int(k)] - mean[name, int(k)]
            assert np.sign(gap["value"]) == np.sign(expected)
            assert gap["value"] == pytest.approx(expected, rel=0.5)


def test_on_a_power_law_the_interpolation_in_logarithms_is_exact():
    curve = {k: 100 / k**2 for k in (4, 8, 16)}
    assert steps_for_distance(100 / 6**2, curve) == (pytest.approx(6), "exactly")
    assert steps_for_distance(100 / 11**2, curve) == (pytest.approx(11), "exactly")
    assert steps_for_distance(100 / 16**2, curve) == (pytest.approx(16), "exactly")
    assert steps_for_distance(100 / 4**2, curve) == (4, "exactly")


def test_nothing_is_guessed_beyond_what_was_measured():
    curve = {4: 10.0, 8: 5.0}
    assert steps_for_distance(4.9, curve) == (8, "at least")
    assert steps_for_distance(10.1, curve) == (4, "at most")


def test_a_curve_that_rises_again_counts_where_it_first_came_so_near():
    assert steps_for_distance(4.0, {4: 16.0, 8: 4.0, 16: 8.0, 32: 2.0}) == (pytest.approx(8), "exactly")
    assert steps_for_distance(3.0, {4: 16.0, 8: 4.0, 16: 8.0, 32: 2.0})[0] > 16


def made_up(gaps, saved=0.3):
    """Gaps at K = 5, 10, ...: the lowest K is none of the claim's."""
    by_k = {str(5 * 2**i): difference(*ends) for i, ends in enumerate(gaps)}
    same = {k: {"steps": 1.0, "saved": saved, "known": "exactly"} for k in by_k}
    return {"frechet_fine": {"gap": {"uniform-trailing": by_k}, "same_distance": {"uniform-trailing": same}}}


@pytest.mark.parametrize("text", ["at every NFE", "against samples of the reference"])
def test_every_nfe_but_the_lowest_means_every(text):
    less, more, chance = (-2, -1), (1, 2), (-1, 1)
    assert word(FID_VS_NFE, text, made_up([more, less, less])) == HOLDS
    assert word(FID_VS_NFE, text, made_up([less, less, chance])) == IN_PART
    assert word(FID_VS_NFE, text, made_up([less, chance, more])) == FAILS


@pytest.mark.parametrize(("saved", "said"), [(0.3, HOLDS), (0.15, IN_PART), (0.05, FAILS), (-0.2, FAILS)])
def test_a_quarter_of_the_calls_is_saved_or_half_of_that_or_nothing(saved, said):
    assert word(FID_VS_NFE, "25 % fewer", made_up([(-2, -1)], saved)) == said


def test_more_steps_must_be_better_each_time():
    def rows(*distances):
        cell = {"solver": "ddim", "schedule": "geosprint"}
        return [{**cell, "steps": 2**k, "frechet_fine": found} for k, found in enumerate(distances)]

    assert word(FID_VS_NFE, "monotonically", {}, rows(3, 2, 1)) == HOLDS
    assert word(FID_VS_NFE, "monotonically", {}, rows(3, 1, 2)) == IN_PART


def test_flows_are_measured_without_leading_spacing():
    found = FID_VS_NFE.run(replace(TOY, model="other_models:flow_ring", steps=(4,)))
    assert found.numbers["uniform"] == ["uniform-trailing", "uniform-linspace"]
    assert "uniform-leading" not in {row["schedule"] for row in found.rows}


def test_where_the_data_is_known_both_protocols_are_judged_and_drawn():
    setting = Setting("fashion", (2, 3), trajectories=2, reference_steps=6, samples=10, repetitions=1, fine_steps=2)
    found = FID_VS_NFE.run(setting)
    assert {"frechet_data", "frechet_fine"} <= set(found.numbers)
    assert found.numbers["fine_to_data"] > 0
    assert "Fréchet distance to the data" in found.verdict
    assert is_drawn(FID_VS_NFE.draw(found))


def test_the_figure_is_drawn(finding):
    assert is_drawn(FID_VS_NFE.draw(finding))
