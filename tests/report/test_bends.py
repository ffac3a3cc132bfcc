"""The series about a profile."""

from __future__ import annotations

import numpy as np
import pytest

from geosprint.extraction import profile_trajectories
from geosprint.models.exact import ring
from geosprint.noise import Flow
from geosprint.profile import CurvatureProfile
from geosprint.report.charts import MOST_LINES, Chart, charts_of, stability_of
from geosprint.sampling import record


@pytest.fixture(scope="module")
def profile(compared):
    return CurvatureProfile.load(compared / "profile.json")


@pytest.fixture(scope="module")
def bends(profile):
    return charts_of(profile)


def test_the_axes_mean_the_same_places(profile, bends):
    columns = bends["retention"].columns
    kept = profile.noise.alphas_cumprod[np.array(columns["t"], dtype=int)]
    np.testing.assert_allclose(columns["sigma"], np.sqrt((1 - kept) / kept), rtol=1e-4)
    np.testing.assert_allclose(columns["log-SNR"], np.log(kept / (1 - kept)), rtol=1e-4)


def test_retention_is_the_share_of_samples_that_need_a_state(profile, bends):
    shares = profile.kept[:, :-1].sum(axis=0) / len(profile.kept)
    np.testing.assert_allclose(bends["retention"].columns["as the paper counts it"], shares, rtol=1e-4)
    assert bends["retention"].columns["t"] == profile.timesteps[:-1].tolist()


def test_two_halves_of_equal_size_average_to_the_whole(bends):
    one, other = (np.array(bends["halves"].columns[name]) for name in ("first half", "second half"))
    np.testing.assert_allclose((one + other) / 2, bends["retention"].columns["without the forced window"], atol=1e-4)
    assert not np.array_equal(one, other)


def test_every_density_has_mass_one(profile, bends):
    t, _, _, *densities = bends["densities"].columns.values()
    clock = profile.noise.clock(t)
    assert len(densities) == 3
    for values in densities:
        assert np.trapezoid(values, clock) == pytest.approx(1, abs=0.06)  # 251 of a thousand nodes are shown


def test_every_sample_is_counted_once(profile, bends):
    counts = bends["counts"].columns
    assert sum(counts["samples"]) == len(profile.kept)
    needed = np.repeat(counts["states"], counts["samples"])
    assert sorted(needed) == sorted(row.sum() for row in profile.kept)


def test_the_oracle_takes_the_first_number_of_steps_below_the_target(bends):
    oracle = bends["oracle"]
    met = [k for k, score in zip(*oracle.columns.values(), strict=True) if score <= 1e-3]
    assert oracle.marks == {"target": 1e-3, "chosen": met[0]}


def test_a_table_stands_behind_every_chart(bends):
    tables = {name: chart.table for name, chart in bends.items()}
    assert set(tables) == {"retention", "densities", "counts", "halves", "oracle"}
    first = tables["retention"].lines[0]
    assert first[0] == "999"
    assert len(tables["densities"].lines) <= MOST_LINES
    assert "One line in 5 is shown" in tables["densities"].caption


def test_a_long_table_shows_some_lines_and_a_short_one_all():
    long, brief = range(121), range(60)
    assert [line[0] for line in Chart("x.", {"n": list(long)}).table.lines] == [str(n) for n in range(0, 121, 3)]
    assert [line[0] for line in Chart("x.", {"n": list(brief)}).table.lines] == [str(n) for n in brief]


def test_a_flow_has_no_sigma_of_nothing():
    model = ring(noise=Flow())
    found = charts_of(profile_trajectories(record(model, range(4), 20)))["densities"].columns
    assert min(found["sigma"]) > 0
    assert np.isfinite(found["log-SNR"]).all()


def test_a_single_trajectory_is_not_halved():
    profile = profile_trajectories(record(ring(), [0], 20))
    assert "halves" not in charts_of(profile)
    assert stability_of(profile) == "One trajectory alone cannot be halved."
