"""The series about a profile."""

from __future__ import annotations

import numpy as np
import pytest

from geosprint.extraction import profile_trajectories
from geosprint.models.exact import ring
from geosprint.noise import Flow
from geosprint.profile import CurvatureProfile
from geosprint.report.charts import MOST_LINES, Bends, on_all_axes, stability_of, table_of_series
from geosprint.sampling import record


@pytest.fixture(scope="module")
def profile(compared):
    return CurvatureProfile.load(compared / "profile.json")


@pytest.fixture(scope="module")
def bends(profile):
    return Bends.of(profile)


def test_the_axes_mean_the_same_places():
    noise = ring().noise
    places = on_all_axes(np.array([999.0, 400.0, 0.0]), noise)
    kept = noise.alphas_cumprod[[999, 400, 0]]
    np.testing.assert_allclose(places["sigma"], np.sqrt((1 - kept) / kept), rtol=1e-4)
    np.testing.assert_allclose(places["logsnr"], np.log(kept / (1 - kept)), rtol=1e-4)


def test_retention_is_the_share_of_samples_that_need_a_state(profile, bends):
    shares = profile.kept[:, :-1].sum(axis=0) / len(profile.kept)
    np.testing.assert_allclose(bends.retention.series["as the paper counts it"], shares, rtol=1e-4)
    assert bends.retention.places["t"] == profile.timesteps[:-1].tolist()


def test_two_halves_of_equal_size_average_to_the_whole(bends):
    one, other = (np.array(half) for half in bends.halves.series.values())
    np.testing.assert_allclose((one + other) / 2, bends.retention.series["without the forced window"], atol=1e-4)
    assert not np.array_equal(one, other)


def test_every_density_has_mass_one(profile, bends):
    clock = profile.noise.clock(bends.densities.places["t"])
    assert len(bends.densities.series) == 3
    for values in bends.densities.series.values():
        assert np.trapezoid(values, clock) == pytest.approx(1, abs=0.06)  # 251 of a thousand nodes are shown


def test_every_sample_is_counted_once(profile, bends):
    counts = bends.counts
    assert sum(counts["samples"]) == len(profile.kept)
    needed = np.repeat(counts["states"], counts["samples"])
    assert sorted(needed) == sorted(row.sum() for row in profile.kept)


def test_the_oracle_takes_the_first_number_of_steps_below_the_target(bends):
    oracle = bends.oracle
    met = [k for k, score in zip(oracle.steps, oracle.scores, strict=True) if score <= oracle.target]
    assert oracle.chosen == met[0]
    assert oracle.target == 1e-3


def test_a_table_stands_behind_every_chart(bends):
    tables = bends.tables
    assert set(tables) == {"retention", "densities", "counts", "halves", "oracle"}
    first = tables["retention"].lines[0]
    assert first[0] == "999"
    assert len(tables["densities"].lines) <= MOST_LINES
    assert "One line in 5 is shown" in tables["densities"].caption


def test_a_long_table_shows_some_lines_and_a_short_one_all():
    long, brief = range(121), range(60)
    assert [line[0] for line in table_of_series("x.", ["n"], long).lines] == [str(n) for n in range(0, 121, 3)]
    assert [line[0] for line in table_of_series("x.", ["n"], brief).lines] == [str(n) for n in brief]


def test_a_flow_has_no_sigma_of_nothing():
    model = ring(noise=Flow())
    found = Bends.of(profile_trajectories(record(model, range(4), 20))).densities
    assert min(found.places["sigma"]) > 0
    assert np.isfinite(found.places["logsnr"]).all()


def test_a_single_trajectory_is_not_halved():
    profile = profile_trajectories(record(ring(), [0], 20))
    assert Bends.of(profile).halves is None
    assert stability_of(profile) == "One trajectory alone cannot be halved."
