"""The curvature profile: how often each reference timestep survives pruning, w(t) of Eq. 6."""

from __future__ import annotations

import warnings
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geosprint.errors import GeometryError
from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.geometry import CHORD_POINTS
from geosprint.noise import CLEAN, Array, NoiseSchedule
from geosprint.schedule import BLEND, blended_density, quantile_times
from geosprint.threshold import SEARCHES, Mask
from geosprint.trajectory import NORMALISATIONS, SPACES, Origin

FORMAT = "geosprint-profile"
TARGET_SCORE = 1e-3  # Section 3.1's example; the paper states no other


@dataclass(frozen=True)
class Settings:
    """How the trajectories were pruned."""

    window: int = 2
    levels: int = 1
    target_score: float = TARGET_SCORE
    search: str = "exact"
    space: str = "vp"
    normalisation: str = "time"

    def __post_init__(self) -> None:
        if self.window < 2 or self.levels < 1:
            raise GeometryError(f"window must be at least 2 and levels at least 1, got {self.window} and {self.levels}")
        if not 0 < self.target_score < 1:
            raise GeometryError(f"target_score must be in 0..1, a share of the variance, got {self.target_score}")
        for name, allowed in (("search", SEARCHES), ("space", SPACES), ("normalisation", NORMALISATIONS)):
            if getattr(self, name) not in allowed:
                raise GeometryError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class RetentionAgreement:
    """How alike two retentions and the schedules made from them are (Figure 5)."""

    correlation: float  # of the retentions
    jaccard: float  # of the timesteps
    fuzzy_jaccard: float  # where timesteps within 5 of each other are the same


@dataclass(frozen=True)
class Stability(RetentionAgreement):
    """RetentionAgreement of two halves of the trajectories, averaged over random halvings."""

    steps: int  # of the schedules compared


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureProfile:
    """Where the trajectories of one model bend, and everything needed to find it out again."""

    kept: Mask  # (trajectories, N+1) what pruning left of each trajectory
    timesteps: Array  # (N+1,) the last one is CLEAN
    thresholds: Array  # (trajectories,)
    scores: Array  # (trajectories,) alpha_traj, Eq. 8
    seeds: tuple[int, ...]
    origin: Origin
    settings: Settings
    chord_scores: Array  # (points, points) mean score lost between two kept states
    chord_points: NDArray[np.intp]  # (points,) the reference states of that table
    nfe: int = 0  # network calls spent on recording
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count, points = self.kept.shape
        if len(self.timesteps) != points or self.timesteps[-1] != CLEAN or not (np.diff(self.timesteps) < 0).all():
            raise GeometryError(f"{points} states need {points} strictly falling timesteps that end with CLEAN (-1)")
        for name in ("thresholds", "scores", "seeds"):
            if len(getattr(self, name)) != count:
                raise GeometryError(f"{count} trajectories need {count} {name}, got {len(getattr(self, name))}")
        if not self.kept[:, : self.settings.window].all():
            raise GeometryError(f"the first {self.settings.window} states of every trajectory are kept by definition")
        if self.chord_scores.shape != (len(self.chord_points),) * 2:
            raise GeometryError(
                f"chord_scores must be square over {len(self.chord_points)} points, got {self.chord_scores.shape}"
            )
        if list(self.chord_points[[0, -1]]) != [0, points - 1] or (np.diff(self.chord_points) <= 0).any():
            raise GeometryError(f"chord_points must rise from 0 to {points - 1}, the last state")
        if not self.origin.noise.contains(self.timesteps[:-1]).all():
            raise GeometryError("the timesteps are not those of the profile's noise schedule")

    def __repr__(self) -> str:
        count, points = self.kept.shape
        kept = self.retained_counts.mean()
        return f"CurvatureProfile({self.origin.model}: {count} trajectories of {points} states, {kept:.1f} kept)"

    @property
    def noise(self) -> NoiseSchedule:
        """The noise schedule of the model."""
        return self.origin.noise

    @property
    def retention(self) -> Array:
        """w(t) of Eq. 6 for every reference timestep, the forced first window counted."""
        return self.kept[:, :-1].mean(axis=0)  # the clean state is no step

    @property
    def free_retention(self) -> Array:
        """w(t) where the forced first window takes the value of its nearest free neighbour."""
        return self.free_kept.mean(axis=0)

    @property
    def free_kept(self) -> Mask:
        """What each trajectory retains of the steps, its forced first window taking its nearest free neighbour's."""
        return _without_forced(self.kept, self.settings.window)

    @property
    def retained_counts(self) -> NDArray[np.intp]:
        """Geometric complexity of each sample: how many states it needs (Section 3.2)."""
        return self.kept.sum(axis=1)

    def score_of_steps(self, timesteps: Array) -> float:
        """Mean alpha_traj of a schedule: every skipped state against the chord between its kept neighbours."""
        grid = self.noise.clock(np.maximum(self.timesteps[self.chord_points[:-1]], 0.0))
        asked = self.noise.clock(timesteps)
        nearest = np.abs(grid[None] - asked[:, None]).argmin(axis=1)
        # A walk always holds its first noise and its clean end.
        kept = np.unique(np.concatenate([[0], nearest, [len(self.chord_points) - 1]]))
        return float(self.chord_scores[kept[:-1], kept[1:]].sum())

    def stability(self, steps: int = 20, halvings: int = 8, blend: float = BLEND) -> Stability:
        """How much of the profile is the model, and how much the choice of trajectories."""
        times, window = self.timesteps[:-1], self.settings.window
        return stability_of(self.kept, times, self.noise, window, steps, halvings, blend)

    def halves(self, halving: int = 0) -> tuple[Array, Array]:
        """w(t) of either half of the trajectories, halved at random in this way."""
        return _halves(self.kept, self.settings.window, halving)

    def provenance(self) -> dict[str, Any]:
        """What a schedule made from this profile says of its origin."""
        return {**self._about, "seeds": [self.seeds[0], self.seeds[-1]]}

    @property
    def _about(self) -> dict[str, Any]:
        return {
            "model": self.origin.model,
            "trajectories": len(self.kept),
            "reference_steps": len(self.timesteps) - 1,
            "origin": self.origin.to_dict(),
            "settings": asdict(self.settings),
            "versions": self.versions,
        }

    def save(self, path: Path) -> Path:
        """The JSON file of this profile, w(t) first for the reader."""
        content = {
            **self._about,
            "nfe": self.nfe,
            "timesteps": self.timesteps.tolist(),
            "retention": [round(w, 6) for w in self.retention.tolist()],
            "seeds": list(self.seeds),
            "thresholds": self.thresholds.tolist(),
            "scores": self.scores.tolist(),
            "kept": ["".join("1" if kept else "0" for kept in row) for row in self.kept],
            "chord_points": self.chord_points.tolist(),
            "chord_scores": [
                [float(f"{score:.4g}") for score in row[i + 1 :]] for i, row in enumerate(self.chord_scores)
            ],
        }
        return write_json(Path(path), FORMAT, content)

    @classmethod
    def load(cls, path: Path) -> CurvatureProfile:
        """The inverse of `save`."""
        content = read_json(Path(path), FORMAT)
        with refusing_damage(Path(path)):
            profile = cls(
                kept=_masks(content["kept"]),
                timesteps=np.array(finite(content["timesteps"])),
                thresholds=np.array(finite(content["thresholds"])),
                scores=np.array(finite(content["scores"])),
                seeds=tuple(int(seed) for seed in finite(content["seeds"])),
                origin=Origin.from_dict(content["origin"]),
                settings=Settings(**content["settings"]),
                chord_scores=_upper_triangle(content["chord_scores"]),
                chord_points=np.array(content["chord_points"], dtype=np.intp),
                nfe=int(content["nfe"]),
                versions=dict(content["versions"]),
            )
            if not np.allclose(profile.retention, finite(content["retention"]), atol=1e-5):
                raise ValueError("its retention is not the mean of its kept rows; was it edited by hand?")
            return profile


def stability_of(
    kept: Mask,
    timesteps: Array,
    noise: NoiseSchedule,
    window: int = 2,
    steps: int = 20,
    halvings: int = 8,
    blend: float = BLEND,
) -> Stability:
    """How far halves of these trajectories agree, as pruning left them (trajectories, N+1)."""
    if len(kept) < 2:
        raise GeometryError(f"stability compares two halves: at least 2 trajectories are needed, got {len(kept)}")
    steps = min(steps, len(timesteps))
    found = [agreement(*_halves(kept, window, i), timesteps, noise, steps, blend) for i in range(halvings)]
    correlation, exactly, fuzzy = np.mean([astuple(one) for one in found], axis=0)
    return Stability(float(correlation), float(exactly), float(fuzzy), steps)


def agreement(
    first: Array, second: Array, timesteps: Array, noise: NoiseSchedule, steps: int, blend: float = BLEND
) -> RetentionAgreement:
    """Of two retentions over the same timesteps, and of the schedules of K steps made from them."""
    with warnings.catch_warnings():  # a few straight trajectories retain nothing: then their schedule is log-SNR's
        warnings.simplefilter("ignore")
        one, other = (
            quantile_times(blended_density(w, timesteps, noise, blend), steps, noise) for w in (first, second)
        )
    near = 5 * noise.first / 999  # five of a thousand timesteps
    return RetentionAgreement(_correlation(first, second), jaccard(one, other, 0), jaccard(one, other, near))


def _halves(kept: Mask, window: int, halving: int) -> tuple[Array, Array]:
    shuffled = np.random.default_rng(halving).permutation(len(kept))
    one, other = np.split(_without_forced(kept[shuffled], window), [len(kept) // 2])
    return one.mean(axis=0), other.mean(axis=0)


def jaccard(one: Array, other: Array, within: float) -> float:
    """Matched steps over all steps, where two steps match if they are this close; each is matched once."""
    matched, i, j = 0, 0, 0
    one, other = np.sort(one), np.sort(other)
    while i < len(one) and j < len(other):
        if abs(one[i] - other[j]) <= within:
            matched, i, j = matched + 1, i + 1, j + 1
        elif one[i] < other[j]:
            i += 1
        else:
            j += 1
    return matched / (len(one) + len(other) - matched)


def _without_forced(kept: Mask, window: int) -> Mask:
    free = min(window, kept.shape[1] - 2)
    return np.hstack([np.repeat(kept[:, [free]], free, axis=1), kept[:, free:-1]])


def _correlation(first: Array, second: Array) -> float:
    if first.std() == 0 or second.std() == 0:
        return float(np.array_equal(first, second))
    return float(np.corrcoef(first, second)[0, 1])


def _masks(rows: Any) -> Mask:
    if not isinstance(rows, list) or not rows or any(set(row) - {"0", "1"} for row in rows):
        raise ValueError("kept must be rows of 0 and 1")
    if len({len(row) for row in rows}) != 1:
        raise ValueError("the rows of kept must have one length")
    return np.array([[letter == "1" for letter in row] for row in rows])


def _upper_triangle(rows: Any) -> Array:
    if len(rows) > CHORD_POINTS:
        raise ValueError(f"chord_scores must have up to {CHORD_POINTS} rows, got {len(rows)}")
    table = np.zeros((len(rows), len(rows)))
    for i, row in enumerate(rows):
        table[i, i + 1 :] = finite(row)
    if (table < 0).any():
        raise ValueError("chord_scores must not be negative")
    return table
