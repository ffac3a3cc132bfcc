"""Step schedules: densities over time, their blend (Eq. 7), and the placement of exactly K steps."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from geosprint.errors import ScheduleError
from geosprint.files import finite, read_json, refusing_damage, write_json
from geosprint.noise import LOG_SNR_LIMIT, Array, NoiseSchedule
from geosprint.trajectory import check_origin

if TYPE_CHECKING:
    from geosprint.profile import CurvatureProfile


FORMAT = "geosprint-schedule"
BLEND = 0.6  # Section 3.2: the paper's optimum on CIFAR-10
SMOOTHING = 5.0  # Section 3.2: width of the Gaussian kernel, in cells of the reference grid
FLOOR = 0.05  # Section 3.2: share of the largest smoothed retention that every time gets


@dataclass(frozen=True, eq=False, repr=False)
class StepSchedule:
    """K times at which to call the model, noise first, and the sigmas that other tools exchange."""

    timesteps: Array  # (K,) strictly decreasing
    sigmas: Array  # (K+1,) sigma of each step, then 0
    log_snr: Array  # (K,)
    provenance: dict[str, Any] = field(default_factory=dict)  # how it was made

    def __post_init__(self) -> None:
        for name in ("timesteps", "sigmas", "log_snr"):
            if np.ndim(getattr(self, name)) != 1 or not np.isfinite(getattr(self, name)).all():
                raise ScheduleError(f"{name} must be a list of finite numbers, got {_shortened(getattr(self, name))}")
        steps = len(self.timesteps)
        if steps < 1 or (np.diff(self.timesteps) >= 0).any():
            raise ScheduleError(f"timesteps must fall strictly, got {_shortened(self.timesteps)}")
        if len(self.sigmas) != steps + 1 or self.sigmas[-1] != 0 or (np.diff(self.sigmas) >= 0).any():
            raise ScheduleError(
                f"{steps} timesteps need {steps + 1} strictly falling sigmas, the last one 0, "
                f"got {_shortened(self.sigmas)}"
            )
        if len(self.log_snr) != steps:
            raise ScheduleError(f"{steps} timesteps need as many log-SNR values, got {len(self.log_snr)}")

    @classmethod
    def at(cls, timesteps: ArrayLike, noise: NoiseSchedule, provenance: dict[str, Any]) -> StepSchedule:
        """These times of this noise schedule."""
        times = checked_times(timesteps, noise, f"a {noise.kind} model")
        return cls(times, np.append(noise.sigma(times), 0.0), noise.log_snr(times), provenance)

    def __len__(self) -> int:
        return len(self.timesteps)

    def __repr__(self) -> str:
        return f"StepSchedule({len(self)} steps, t = {self.timesteps[0]:g} … {self.timesteps[-1]:g})"

    def check_fits(self, noise: NoiseSchedule, model: str) -> None:
        """Refuse a model in which these times mean other noise levels."""
        check_times_mean(self.timesteps, self.sigmas[:-1], noise, f"model {model!r}")

    def warn_of_other_conditions(self, conditions: dict[str, Any]) -> None:
        """Another label or guidance bends the trajectories elsewhere: say so, naming both."""
        origin = self.provenance.get("origin")
        recorded = origin.get("conditions") if isinstance(origin, dict) else None
        if not isinstance(recorded, dict):  # made by a formula, or by an older version
            return
        made, here = _asked_to_draw(recorded), _asked_to_draw(conditions)
        if made != here:
            warnings.warn(
                f"these steps were made from draws with {made}, this model draws with {here}; "
                "steps that suit one may suit the other less",
                stacklevel=2,
            )

    def save(self, path: Path) -> Path:
        """The JSON file that travels."""
        content = {
            "steps": len(self),
            "timesteps": [int(t) if t.is_integer() else t for t in self.timesteps.tolist()],
            "sigmas": self.sigmas.tolist(),
            "log_snr": self.log_snr.tolist(),
            "provenance": self.provenance,
        }
        return write_json(Path(path), FORMAT, content)

    @classmethod
    def load(cls, path: Path) -> StepSchedule:
        """The inverse of `save`."""
        content = read_json(Path(path), FORMAT)
        with refusing_damage(Path(path)):
            if not isinstance(content["provenance"], dict):
                raise ValueError("its provenance must be an object")
            check_origin(content["provenance"].get("origin") or {})
            return cls.of_content(content, content["provenance"])

    @classmethod
    def of_content(cls, content: dict[str, Any], provenance: dict[str, Any]) -> StepSchedule:
        """The schedule in a file that lists its times, sigmas and log-SNRs."""
        times, sigmas, log_snr = (np.array(finite(content[name])) for name in ("timesteps", "sigmas", "log_snr"))
        if content["steps"] != len(times):
            raise ValueError(f"it says {content['steps']} steps but lists {len(times)}")
        return cls(times, sigmas, log_snr, provenance)


@dataclass(frozen=True, eq=False)
class Density:
    """A density over the noise schedule's clock (0 clean, 1 noise), given at its nodes, integrating to 1."""

    clock: Array  # (nodes,) rising
    values: Array  # (nodes,) positive

    @classmethod
    def normalised(cls, clock: Array, values: Array) -> Density:
        """These values scaled to integrate to 1."""
        return cls(clock, values / np.trapezoid(values, clock))

    def quantiles(self, shares: ArrayLike) -> Array:
        """Where these shares of the mass lie below, by the trapezoidal CDF."""
        pieces = np.diff(self.clock) * (self.values[1:] + self.values[:-1]) / 2
        mass = np.append(0.0, np.cumsum(pieces))
        return np.interp(np.asarray(shares) * mass[-1], mass, self.clock)


def build_schedule(profile: CurvatureProfile, steps: int, blend: float = BLEND, literal: bool = False) -> StepSchedule:
    """Algorithm 1's last lines: K steps at uniform quantiles of the blended density.

    `literal` counts the forced first points of every trajectory as retained, as the paper does;
    the default gives them the value of their nearest free neighbour.
    """
    density = profile_density(profile, blend, literal)
    provenance = {"method": "geosprint", "blend": blend, "literal": literal, **profile.provenance()}
    return StepSchedule.at(quantile_times(density, steps, profile.noise), profile.noise, provenance)


def top_k_schedule(profile: CurvatureProfile, steps: int, literal: bool = False) -> StepSchedule:
    """Section 3.2's naive ablation: both ends and the K - 2 times between that are retained most often."""
    available = len(profile.timesteps) - 1
    if not 2 <= steps <= available:
        raise ScheduleError(
            f"top-k picks from the {available} reference timesteps: steps must be in 2..{available}, got {steps}"
        )
    retention = profile.retention if literal else profile.free_retention
    smooth = smoothed(retention, SMOOTHING)
    # Equal counts are common (w is a multiple of 1/B): the smoothed neighbourhood decides, then the noisier time.
    inner = np.lexsort((np.arange(available), -smooth, -retention))
    inner = inner[(inner != 0) & (inner != available - 1)][: steps - 2]
    chosen = np.sort(np.concatenate([[0, available - 1], inner]))
    provenance = {"method": "top-k", "literal": literal, **profile.provenance()}
    return StepSchedule.at(profile.timesteps[chosen], profile.noise, provenance)


def profile_density(profile: CurvatureProfile, blend: float = BLEND, literal: bool = False) -> Density:
    """The density that `build_schedule` places its steps by."""
    if not 0 <= blend <= 1:
        raise ScheduleError(f"blend must be in 0..1, got {blend}")
    retention = profile.retention if literal else profile.free_retention
    return blended_density(retention, profile.timesteps[:-1], profile.noise, blend)


def blended_density(retention: Array, timesteps: Array, noise: NoiseSchedule, blend: float) -> Density:
    """Eq. 7 from the retention w of each reference timestep."""
    uniform_in_log_snr = log_snr_density(noise)
    if not retention.any():
        warnings.warn("no step was retained beyond the first window; using the log-SNR density alone", stacklevel=2)
        return uniform_in_log_snr
    curvature = curvature_density(retention, timesteps, noise)
    return Density.normalised(curvature.clock, (1 - blend) * uniform_in_log_snr.values + blend * curvature.values)


def log_snr_density(noise: NoiseSchedule) -> Density:
    """Uniform in log-SNR, as a density over the clock; log-SNR beyond the limit counts no further."""
    clock = _nodes(noise)
    log_snr = np.clip(noise.log_snr(noise.time_at(clock)), -LOG_SNR_LIMIT, LOG_SNR_LIMIT)
    slope = np.abs(np.gradient(log_snr, clock))
    floor = 1e-9 * slope.max()  # no step where nothing changes, but an order
    return Density.normalised(clock, np.maximum(slope, floor))


def curvature_density(
    retention: Array,
    timesteps: Array,
    noise: NoiseSchedule,
    smoothing: float = SMOOTHING,
    unit: str = "cells",
    floor: float = FLOOR,
) -> Density:
    """Retention, smoothed and floored (Section 3.2), carried from the reference grid to the training grid."""
    if unit not in ("cells", "timesteps"):
        raise ScheduleError(f"the unit of smoothing must be cells or timesteps, got {unit!r}")
    gap = (timesteps[0] - timesteps[-1]) / (len(timesteps) - 1)
    smooth = smoothed(retention, smoothing if unit == "cells" else smoothing / gap)
    floored = np.maximum(smooth, floor * smooth.max())
    clock = _nodes(noise)
    return Density.normalised(clock, np.interp(clock, noise.clock(timesteps)[::-1], floored[::-1]))


def smoothed(values: Array, width: float) -> Array:
    """Convolved with a Gaussian of this width in cells, the ends repeated."""
    if width <= 0:
        return values
    radius = int(4 * width + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / width) ** 2)
    return np.convolve(np.pad(values, radius, mode="edge"), kernel / kernel.sum(), mode="valid")


def quantile_times(density: Density, steps: int, noise: NoiseSchedule) -> Array:
    """Exactly K strictly decreasing times at uniform quantiles, both ends pinned.

    Whole timesteps: the first and the last trained one. Continuous time: pure noise and the clean end,
    which is not a step, so that the last step carries its share as well.
    """
    check_steps(steps, noise)
    if noise.continuous:
        return noise.time_at(density.quantiles(np.linspace(0, 1, steps + 1)))[:0:-1].copy()
    return known_times(noise.time_at(density.quantiles(np.linspace(0, 1, steps)))[::-1], noise)


def checked_times(timesteps: ArrayLike, noise: NoiseSchedule, whose: str) -> Array:
    """Times that fall strictly and that a noise schedule knows, or an error that names the wrong one."""
    times = np.asarray(timesteps, dtype=np.float64)
    if times.ndim != 1 or len(times) == 0:
        raise ScheduleError(f"timesteps must be a list of at least one number, got shape {times.shape}")
    for t, t_next in pairwise(times):
        if t_next >= t:
            raise ScheduleError(f"timesteps must fall strictly, but {t:g} is followed by {t_next:g}")
    if len(strange := times[~noise.contains(times)]):
        kind = "times" if noise.continuous else "whole timesteps"
        raise ScheduleError(f"{whose} knows {kind} in {noise.last:g}..{noise.first:g}, got {strange[0]:g}")
    return times


def check_times_mean(times: Array, sigmas: Array, noise: NoiseSchedule, whose: str) -> None:
    """Refuse times that are not this noise schedule's, or that it gives other sigmas to, naming both values."""
    if not noise.contains(times).all():
        raise ScheduleError(
            f"these steps have times {times[0]:g}..{times[-1]:g}, but {whose} ({noise.kind}) knows "
            f"{noise.last:g}..{noise.first:g}; make them from its own profile"
        )
    here = noise.sigma(times)
    off = np.abs(np.log(here / sigmas))
    worst = int(np.argmax(off))
    if off[worst] > 5e-3:  # tables in float32 differ by 1e-3
        raise ScheduleError(
            f"these steps were made for another noise schedule: at t = {times[worst]:g} they expect "
            f"sigma {sigmas[worst]:.4g}, but {whose} has {here[worst]:.4g}; make them from its own profile"
        )


def check_steps(steps: int, noise: NoiseSchedule) -> None:
    """K must be possible: at least 2, and no more than there are whole timesteps."""
    if steps < 2:
        raise ScheduleError(f"steps must be at least 2, got {steps}")
    if not noise.continuous and steps > noise.first + 1:
        count = int(noise.first) + 1
        raise ScheduleError(f"steps must be in 2..{count}, the number of training timesteps, got {steps}")


def whole_steps(times: Array, first: int) -> Array:
    """Round falling times to whole ones in 0..first and push equal ones apart, moving none farther than needed.

    Steps rise strictly where their slack, the time less the number of steps below, does not fall.
    """
    rising = np.round(times[::-1])
    apart = np.arange(len(rising), dtype=np.float64)
    slack, most = rising - apart, first + 1 - len(rising)
    highest_before, lowest_after = np.maximum.accumulate(slack), np.minimum.accumulate(slack[::-1])[::-1]
    reach = max(np.ceil((highest_before - lowest_after).max() / 2), slack.max() - most, -slack.min(), 0.0)
    floor, ceiling = np.maximum(highest_before - reach, 0), np.minimum(lowest_after + reach, most)
    for i in range(len(slack)):
        floor[i] = min(max(slack[i], floor[i], floor[i - 1] if i else 0.0), ceiling[i])
    return (floor + apart)[::-1]


def _nodes(noise: NoiseSchedule) -> Array:
    """Where densities are known: every training timestep, or a thousand cells of continuous time."""
    cells = 1000 if noise.continuous else int(noise.first)
    return np.linspace(float(noise.clock(noise.last)), 1.0, cells + 1)


def _asked_to_draw(conditions: dict[str, Any]) -> str:
    """Label and guidance in words; other conditions are those of pipelines."""
    label = conditions.get("label")
    if label is None:
        return "no label"
    said = f"labels {', '.join(map(str, label))}" if isinstance(label, list) else f"label {label}"
    return f"{said} and guidance {conditions.get('guidance', 1.0)}"


def _shortened(numbers: Array) -> str:
    numbers = np.ravel(numbers)
    shown = ", ".join(f"{x:g}" for x in numbers[:8])
    return f"[{shown}{', ...' if len(numbers) > 8 else ''}]"


NARROWEST = 1e-3  # share of all time that a gap counts for at least: one of 0 could never open


def gaps_of(times: ArrayLike, noise: NoiseSchedule) -> Array:
    """The numbers (K + 1,) whose `times_of` are these times."""
    shares = -np.diff([noise.first, *np.asarray(times, dtype=np.float64), noise.last]) / (noise.first - noise.last)
    return np.log(np.maximum(shares, NARROWEST))


def times_of(gaps: Array, noise: NoiseSchedule) -> Array:
    """K times that fall strictly, each gap's share of all time the softmax of its number."""
    return noise.first - (noise.first - noise.last) * np.cumsum(_softmax(gaps))[:-1]


def slopes_of(gaps: Array, noise: NoiseSchedule) -> Array:
    """How the times move with the numbers (K, K + 1)."""
    shares = _softmax(gaps)
    gone = np.cumsum(shares)[:-1]
    counted = np.tri(len(gone), len(shares))
    return -(noise.first - noise.last) * shares * (counted - gone[:, None])


def roughness_of(steps: int) -> Array:
    """The matrix (K + 1, K + 1) of the mean squared bend of the gaps between steps: where the steps begin is free."""
    between = np.eye(steps + 1)[1:steps]
    bends = np.diff(between, n=2, axis=0) if steps > 3 else np.zeros((1, steps + 1))
    return bends.T @ bends / len(bends)


def known_times(times: Array, noise: NoiseSchedule) -> Array:
    """The nearest times that the model knows."""
    return times if noise.continuous else whole_steps(times, int(noise.first))


def _softmax(numbers: Array) -> Array:
    grown = np.exp(numbers - numbers.max())
    return grown / grown.sum()
