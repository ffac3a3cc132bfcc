from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosprint import files
from geosprint.errors import FileError, GeometryError
from geosprint.geometry import CHORD_POINTS, mean_chord_scores
from geosprint.noise import CLEAN, ContinuousVP, DiscreteVP, Flow
from geosprint.profile import CurvatureProfile, Settings, jaccard
from problems import centred_gram, drifting_walk, profile_of_kept, random_kept, random_walk, smooth_curve, straight_line
from references import geometry
from references import schedule as reference

NOISE = DiscreteVP.named(timesteps=100)
TIMES = np.round(np.linspace(99, 0, 20))
CURVES = [smooth_curve, random_walk, drifting_walk]


def toy(seed=0, count=6, window=2, noise=NOISE, times=TIMES):
    return profile_of_kept(random_kept(seed, count, len(times) + 1, window), noise, times, window)


def exact_profile(points, times):
    """A profile of trajectories (count, N+1, d) whose chord scores are theirs."""
    kept = np.ones(points.shape[:2], dtype=bool)
    return profile_of_kept(kept, NOISE, times, gram=centred_gram(points))


def test_a_profile_is_shown_in_one_short_line():
    kept = np.ones((3, 21), dtype=bool)
    kept[1, 5:9] = False
    said = repr(profile_of_kept(kept, NOISE, TIMES))  # keeps 21, 17 and 21
    assert said == "CurvatureProfile(toy: 3 trajectories of 21 states, 19.7 kept)"


# Retention


def test_retention_is_the_share_of_trajectories_that_keep_a_timestep():
    profile = toy()
    assert profile.retention == pytest.approx(reference.retention(profile.kept.tolist()), abs=1e-15)
    assert len(profile.retention) == len(TIMES)
    assert profile.retention[:2].tolist() == [1, 1]


def test_the_clean_state_is_not_counted_but_every_state_is_in_the_retained_counts():
    kept = np.ones((3, 21), dtype=bool)
    kept[1, 5:9] = False
    kept[2, -1] = False
    profile = profile_of_kept(kept, NOISE, TIMES)
    assert profile.retained_counts.tolist() == [21, 17, 20]
    assert profile.retention.tolist() == pytest.approx([1] * 5 + [2 / 3] * 4 + [1] * 11)


@pytest.mark.parametrize("window", [2, 3, 4])
def test_the_forced_first_window_takes_the_value_of_its_nearest_free_neighbour(window):
    profile = toy(1, window=window)
    expected = profile.retention.copy()
    expected[:window] = expected[window]
    assert profile.free_retention.tolist() == expected.tolist()


# Chord scores


@pytest.mark.parametrize("curve", CURVES)
def test_every_entry_of_the_chord_table_is_the_score_lost_between_two_neighbours(curve):
    points = np.stack([curve(seed, 10) for seed in range(3)])
    table, chosen = mean_chord_scores(centred_gram(points))
    assert chosen.tolist() == list(range(10))
    for i in range(10):
        for j in range(i + 1, 10):
            kept = [*range(i + 1), *range(j, 10)]
            score = np.mean([geometry.chord_score(one, kept) for one in points])
            assert table[i, j] == pytest.approx(score, rel=1e-9, abs=1e-13)
    assert np.tril(table).max() == 0


def meeting_itself(seed, points, distance):
    """A walk that comes back to where it was before, up to this distance."""
    walk, random = random_walk(seed, points), np.random.default_rng(seed)
    walk[random.integers(points)] = walk[random.integers(points)] + distance * random.normal(size=walk.shape[1])
    return walk


@pytest.mark.parametrize("count", [3, 17, 40, 201])
@pytest.mark.parametrize(
    "curve",
    [*CURVES, *(lambda seed, points, near=near: meeting_itself(seed, points, near) for near in (0.0, 1e-4, 1e-2))],
    ids=["smooth", "random", "drifting", "meets itself", "comes near", "comes rather near"],
)
def test_long_chord_tables_are_those_of_each_chord_by_itself(curve, count):
    gram = centred_gram(np.stack([curve(seed, count) for seed in range(3)]))
    expected = np.mean([geometry.chord_losses(one) / np.trace(one) for one in gram], axis=0)
    assert mean_chord_scores(gram)[0] == pytest.approx(expected, rel=1e-4, abs=1e-12)


def test_the_chord_table_is_zero_on_straight_lines():
    table, _ = mean_chord_scores(centred_gram(np.stack([straight_line(seed, 12) for seed in range(3)])))
    assert np.abs(table).max() < 1e-12


def test_the_chord_of_a_point_and_its_repetition_is_the_point():
    points = np.array([[0.0, 0], [3, 4], [0, 0], [1, 0]])
    table, _ = mean_chord_scores(centred_gram(points)[None])
    total = ((points - points.mean(axis=0)) ** 2).sum()
    assert table[0, 2] == pytest.approx(25 / total, rel=1e-12)


@given(st.integers(0, 1000), st.sampled_from(CURVES), st.sets(st.integers(0, 19), min_size=1, max_size=15))
@settings(max_examples=40, deadline=None)
def test_the_score_of_steps_is_the_chord_score_of_the_states_they_keep(seed, curve, chosen):
    times = np.arange(19.0, -1.0, -1.0) * 5
    points = np.stack([curve(seed + i, 21) for i in range(2)])
    kept = sorted(chosen)
    # The first noise and the clean end are always there, whatever the timesteps.
    expected = np.mean([geometry.chord_score(one, sorted({0, *kept, 20})) for one in points])
    profile = exact_profile(points, times)
    assert profile.score_of_steps(times[kept]) == pytest.approx(expected, rel=1e-9, abs=1e-13)


def test_the_score_of_steps_between_reference_times_is_that_of_the_nearest_ones():
    points = np.stack([random_walk(i, 21) for i in range(2)])
    times = np.arange(19.0, -1.0, -1.0) * 5
    profile = exact_profile(points, times)
    exact = profile.score_of_steps(np.array([95.0, 50.0, 25.0, 0.0]))
    assert profile.score_of_steps(np.array([94.0, 52.0, 24.0, 1.0])) == exact
    assert profile.score_of_steps(np.array([94.0, 53.0, 24.0, 1.0])) != exact


@pytest.mark.parametrize("noise", [Flow(), Flow(3.0), ContinuousVP()])
def test_all_reference_steps_lose_nothing_in_continuous_time(noise):
    times = noise.time_at(np.arange(20, 0, -1) / 20)
    profile = profile_of_kept(np.ones((2, 21), dtype=bool), noise, times)
    assert profile.score_of_steps(times) == 0
    # The chord over the first reference step, computed by hand.
    without_second = np.delete(times, 1)
    points = [smooth_curve(seed, 21) for seed in range(2)]
    kept = [i for i in range(21) if i != 1]
    expected = np.mean([geometry.chord_score(one, kept) for one in points])
    assert profile.score_of_steps(without_second) == pytest.approx(expected, rel=1e-9)


def test_fine_references_are_thinned_to_a_table_of_bounded_size():
    points = smooth_curve(0, 601, 3)
    table, chosen = mean_chord_scores(centred_gram(points)[None])
    assert len(chosen) == CHORD_POINTS
    assert table.shape == (CHORD_POINTS, CHORD_POINTS)
    assert (chosen[0], chosen[-1]) == (0, 600)
    assert set(np.diff(chosen).tolist()) <= {2, 3}
    coarse = points[chosen]
    kept = [0, 40, 100, 180, CHORD_POINTS - 1]
    ours = sum(table[i, j] for i, j in pairwise(kept))
    assert ours == pytest.approx(geometry.chord_score(coarse, kept), rel=1e-7)


# Agreement of halves


@given(
    st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=12),
    st.lists(st.integers(0, 60), unique=True, min_size=1, max_size=12),
    st.sampled_from([0, 1, 5]),
)
@settings(max_examples=80, deadline=None)
def test_jaccard_counts_the_largest_number_of_matched_steps(one, other, within):
    one, other = np.array(one, dtype=float), np.array(other, dtype=float)
    matched = reference.matched(one, other, within)
    assert jaccard(one, other, within) == pytest.approx(matched / (len(one) + len(other) - matched))


def test_halves_that_are_alike_agree_completely():
    kept = np.repeat(random_kept(1, 1, 21), 8, axis=0)
    found = profile_of_kept(kept, NOISE, TIMES).stability(steps=10)
    assert found.correlation == pytest.approx(1, abs=1e-12)
    assert (found.jaccard, found.fuzzy_jaccard, found.steps) == (1, 1, 10)


def test_halves_of_pure_chance_correlate_little_and_less_than_those_of_a_bump():
    random = np.random.default_rng(0)
    chance = random.uniform(size=(40, 101)) < 0.5
    chance[:, :2] = True
    times = np.round(np.linspace(99, 0, 100))
    found = profile_of_kept(chance, NOISE, times).stability()
    bump = profile_of_kept(random_kept(3, 40, 101), NOISE, times).stability()
    assert abs(found.correlation) < 0.3
    assert bump.correlation > 0.8
    assert found.jaccard <= found.fuzzy_jaccard <= 1


def test_halves_are_compared_without_the_forced_first_window():
    # Only the forced window is common: counting it would look like agreement.
    kept = np.zeros((2, 21), dtype=bool)
    kept[:, :2] = True
    kept[0, 4:12:2] = kept[1, 5:13:2] = True
    found = profile_of_kept(kept, NOISE, TIMES).stability(steps=5)
    assert found.correlation < 0


def test_one_trajectory_has_no_halves():
    with pytest.raises(GeometryError, match="at least 2 trajectories are needed, got 1"):
        toy(count=1).stability()


# Bad input


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("window", 1, "at least 2.*got 1"),
        ("levels", 0, "at least 1.*0"),
        ("target_score", 0.0, "in 0..1.*got 0"),
        ("target_score", float("nan"), "in 0..1.*got nan"),
        ("target_score", 1.5, "in 0..1.*got 1.5"),
        ("search", "guess", "exact, bisection, got 'guess'"),
        ("space", "latent", "vp, ve, x0, got 'latent'"),
        ("normalisation", "all", "time, pooled, none, got 'all'"),
    ],
)
def test_settings_out_of_range_are_refused_with_what_is_allowed_and_what_came(field, value, message):
    with pytest.raises(GeometryError, match=message):
        replace(Settings(), **{field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("timesteps", np.append(TIMES[::-1], CLEAN), "21 strictly falling"),
        ("timesteps", np.append(TIMES[1:], CLEAN), "21 strictly falling"),
        ("timesteps", np.append(TIMES[:-1], [TIMES[-2], CLEAN]), "21 strictly falling"),
        ("timesteps", np.append(TIMES + 0.5, CLEAN), "noise schedule"),
        ("timesteps", np.append(TIMES + 1, CLEAN), "noise schedule"),
        ("timesteps", np.append(np.where(TIMES == 99, np.nan, TIMES), CLEAN), "strictly falling|noise schedule"),
        ("thresholds", np.ones(5), "6 trajectories need 6 thresholds, got 5"),
        ("scores", np.ones(7), "6 trajectories need 6 scores, got 7"),
        ("seeds", (1,), "6 trajectories need 6 seeds, got 1"),
        ("kept", np.zeros((6, 21), dtype=bool), "first 2 states"),
        ("chord_scores", np.zeros((3, 3)), r"square over 21 points, got \(3, 3\)"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(field, value, message):
    with pytest.raises(GeometryError, match=message):
        replace(toy(), **{field: value})


# Files


@pytest.mark.parametrize("noise", [NOISE, DiscreteVP.named("cosine", 100), ContinuousVP(), Flow(3.0)])
def test_a_file_gives_back_what_was_saved(tmp_path, noise):
    times = TIMES if not noise.continuous else noise.time_at(np.arange(20, 0, -1) / 20)
    profile = toy(noise=noise, times=times)
    back = CurvatureProfile.load(profile.save(tmp_path / "profile.json"))
    assert back.kept.tolist() == profile.kept.tolist()
    assert back.timesteps.tolist() == profile.timesteps.tolist()
    assert back.thresholds.tolist() == profile.thresholds.tolist()
    assert back.scores.tolist() == profile.scores.tolist()
    assert back.seeds == profile.seeds
    assert back.origin.to_dict() == profile.origin.to_dict()
    assert back.settings == profile.settings
    assert back.chord_points.tolist() == profile.chord_points.tolist()
    assert back.chord_scores == pytest.approx(profile.chord_scores, rel=1e-3)
    assert (back.nfe, back.versions) == (profile.nfe, profile.versions)
    assert back.provenance() == profile.provenance()


@given(st.integers(0, 1000), st.integers(1, 5), st.sampled_from([2, 3]))
@settings(max_examples=15, deadline=None)
def test_saving_twice_gives_the_same_bytes(tmp_path_factory, seed, count, window):
    here = tmp_path_factory.mktemp("round")
    first = toy(seed, count, window).save(here / "a.json")
    second = CurvatureProfile.load(first).save(here / "b.json")
    assert first.read_bytes() == second.read_bytes()


def test_the_file_is_json_that_says_what_it_is_and_shows_w(tmp_path):
    profile = toy()
    content = json.loads(profile.save(tmp_path / "profile.json").read_text())
    assert (content["format"], content["version"]) == ("geosprint-profile", 1)
    assert content["retention"] == pytest.approx(profile.retention, abs=1e-6)


@pytest.mark.parametrize("length", [0, 1, 100, 1000, -3])
def test_a_truncated_file_is_refused_by_name(tmp_path, length):
    path = toy().save(tmp_path / "profile.json")
    path.write_text(path.read_text()[:length])
    with pytest.raises(FileError, match=r"profile\.json is not a whole JSON file"):
        CurvatureProfile.load(path)


def _set(key, value):
    return lambda content: content.__setitem__(key, value)


def _edit(key, place, value):
    return lambda content: content[key].__setitem__(place, value)


DAMAGE = {
    "another version": (_set("version", 2), "version 1, got 2"),
    "another kind": (_set("format", "geosprint-schedule"), "must be a geosprint-profile.*'geosprint-schedule'"),
    "no kept rows": (lambda content: content.pop("kept"), "'kept' is missing"),
    "no settings": (lambda content: content.pop("settings"), "'settings' is missing"),
    "a kept row of letters": (_edit("kept", 0, "x" * 21), "rows of 0 and 1"),
    "a short kept row": (_edit("kept", 0, "11"), "one length"),
    "kept rows as numbers": (_set("kept", [1, 2]), "damaged"),
    "a retention that is not the mean": (_edit("retention", 9, 0.123), "edited by hand"),
    "a kept state changed": (_edit("kept", 0, "1" * 21), "edited by hand"),
    "a nan written as NaN": (_edit("scores", 0, float("nan")), "NaN"),
    "a score that is a word": (_edit("scores", 0, "low"), "finite numbers"),
    "a missing score": (lambda content: content["scores"].pop(), "6 scores, got 5"),
    "timesteps that rise": (lambda content: content["timesteps"].reverse(), "strictly falling"),
    "a setting that does not exist": (_edit("settings", "widnow", 2), "widnow"),
    "a window of one": (_edit("settings", "window", 1), "at least 2"),
    "chord scores below zero": (lambda content: content["chord_scores"][0].__setitem__(3, -1.0), "negative"),
    "a short row of chord scores": (lambda content: content["chord_scores"][0].pop(), "damaged"),
    "chord points beyond the last state": (_edit("chord_points", 20, 2000), "chord_points"),
    "chord points out of order": (_edit("chord_points", 3, 7), "chord_points"),
    "another noise schedule's times": (
        lambda content: content["origin"]["noise"].__setitem__("timesteps", 10),
        "noise schedule",
    ),
    "an origin without noise": (lambda content: content["origin"].pop("noise"), "'noise' is missing"),
    "an empty list": (lambda content: content.clear(), "format is None"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_hand_edited_file_is_refused_by_name_and_reason(tmp_path, what):
    change, message = DAMAGE[what]
    path = toy().save(tmp_path / "profile.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=message) as refused:
        CurvatureProfile.load(path)
    assert "profile.json" in str(refused.value)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"geosprint-profile"', "{" * 5000, "\x00\xff"])
def test_something_else_altogether_is_refused(tmp_path, text):
    path = tmp_path / "profile.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(FileError, match=r"profile\.json"):
        CurvatureProfile.load(path)


def test_a_missing_file_and_a_directory_are_refused_by_name(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*nowhere\.json"):
        CurvatureProfile.load(tmp_path / "nowhere.json")
    with pytest.raises(FileError, match="must be a file, and is a directory"):
        CurvatureProfile.load(tmp_path)


def test_a_failed_save_keeps_the_old_file_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    path = toy().save(tmp_path / "profile.json")
    before = path.read_bytes()

    def no_space(unfinished, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", no_space)
    with pytest.raises(FileError, match=r"cannot write .*profile\.json: No space left"):
        toy(1).save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]
