"""Noise schedules: how much signal and how much noise a state holds at time t.

A state is x = a·x0 + s·eps. A `NoiseSchedule` knows a and s at every t and converts t to the
exchange sigma and to log-SNR = 2 ln(a / s), both ways. It is fixed by training; where to step
is the business of `schedule.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geosprint.errors import NoiseError

Array = NDArray[np.float64]

CLEAN = -1.0
"""The time of the clean sample: after the last step, never a step itself."""

MOST_TIMESTEPS = 1_000_000
"""Of a table by a formula: a file that asks for more is damaged, or wants to fill the memory."""

LOG_SNR_LIMIT = 2 * math.log(4096)
"""Where infinite log-SNR is cut: the value diffusers gives to a zero terminal SNR (alpha-bar = 2^-24)."""


class NoiseSchedule(ABC):
    """Signal and noise of every time of one trained model."""

    kind: ClassVar[str]
    continuous: ClassVar[bool]
    first: float  # the time of pure noise, the largest
    last: float  # the smallest time the model was trained on

    @abstractmethod
    def log_snr(self, t: ArrayLike) -> Array:
        """2 ln(a / s), finite at the ends: LOG_SNR_LIMIT stands for infinity."""

    @abstractmethod
    def time_of_log_snr(self, log_snr: ArrayLike) -> Array:
        """The inverse of `log_snr`, a fraction where the model's times are whole numbers."""

    @abstractmethod
    def signal_and_sigma(self, t: float) -> tuple[float, float]:
        """The factors a and s of x = a·x0 + s·eps at one time, CLEAN included."""

    def to_dict(self) -> dict[str, Any]:
        """What a file needs to build this schedule again; the inverse of `noise_from_dict`."""
        return {"kind": self.kind, **self.__dict__}

    def sigma(self, t: ArrayLike) -> Array:
        """The sigma that other tools exchange: s / a, or s itself for flow matching."""
        return np.exp(-self.log_snr(t) / 2)

    def time_of_sigma(self, sigma: ArrayLike) -> Array:
        """The inverse of `sigma`."""
        with np.errstate(divide="ignore"):
            return self.time_of_log_snr(-2 * np.log(np.asarray(sigma, dtype=np.float64)))

    def clock(self, t: ArrayLike) -> Array:
        """Times as fractions of the way from clean (0) to noise (1) in which a uniform spacing is uniform."""
        return np.asarray(t, dtype=np.float64) / self.first

    def time_at(self, clock: ArrayLike) -> Array:
        """The inverse of `clock`."""
        return np.asarray(clock, dtype=np.float64) * self.first

    def contains(self, t: ArrayLike) -> NDArray[np.bool_]:
        """Which of these times the model can be asked about."""
        t = np.asarray(t, dtype=np.float64)
        inside = (t >= self.last) & (t <= self.first)
        return inside if self.continuous else inside & (t == np.round(t))

    def same_as(self, other: NoiseSchedule) -> bool:
        """Whether both mean the same states by the same times (float32 tables differ by 1e-3)."""
        if (self.kind, self.first) != (other.kind, other.first):
            return False
        times = self.time_at(np.linspace(self.clock(self.last), 1, 257))
        return bool(np.allclose(self.log_snr(times), other.log_snr(times), atol=1e-2))


@dataclass(frozen=True, eq=False)
class DiscreteVP(NoiseSchedule):
    """Variance preserving, at whole timesteps 0..T-1: a² = alpha-bar and s² = 1 - alpha-bar."""

    alphas_cumprod: Array = field(repr=False)  # (T,) strictly decreasing, to nearly 0 (0: zero terminal SNR)
    final_alpha_cumprod: float = 1.0  # alpha-bar of the clean end; some models stop at alphas_cumprod[0]
    recipe: dict[str, Any] | None = field(default=None, repr=False)  # how `named` made it, for small files

    kind: ClassVar[str] = "discrete-vp"
    continuous: ClassVar[bool] = False
    last: ClassVar[float] = 0.0  # type: ignore[misc]

    def __post_init__(self) -> None:
        table = np.asarray(self.alphas_cumprod, dtype=np.float64)
        object.__setattr__(self, "alphas_cumprod", table)
        if table.ndim != 1 or len(table) < 2 or not np.isfinite(table).all():
            raise NoiseError(f"alphas_cumprod must be a list of at least 2 finite numbers, got shape {table.shape}")
        if table.max() > 1 or table.min() < 0 or (np.diff(table) >= 0).any():
            raise NoiseError("alphas_cumprod must fall strictly and lie in 0..1; is it reversed, or are these betas?")
        if not table[0] <= self.final_alpha_cumprod <= 1:
            raise NoiseError(
                f"final_alpha_cumprod must be in alphas_cumprod[0]..1 = {table[0]:.6f}..1, "
                f"got {self.final_alpha_cumprod}"
            )

    @classmethod
    def named(
        cls,
        rates: str = "linear",
        timesteps: int = 1000,
        first_rate: float | None = None,
        last_rate: float | None = None,
        zero_terminal_snr: bool = False,
    ) -> DiscreteVP:
        """Linear (Ho et al. 2020), scaled_linear (Rombach et al. 2022) or cosine (Nichol & Dhariwal 2021)."""
        if rates not in _RATES:
            raise NoiseError(f"rates must be one of {', '.join(_RATES)}, got {rates!r}")
        if not 2 <= timesteps <= MOST_TIMESTEPS:
            raise NoiseError(f"timesteps must be at least 2 and at most {MOST_TIMESTEPS}, got {timesteps}")
        formula, usual_first, usual_last = _RATES[rates]
        first_rate = usual_first if first_rate is None else first_rate
        last_rate = usual_last if last_rate is None else last_rate
        if not 0 <= first_rate <= last_rate < 1:
            raise NoiseError(
                f"noise rates must satisfy 0 <= first_rate <= last_rate < 1, got {first_rate} and {last_rate}"
            )
        table = np.cumprod(1 - formula(timesteps, first_rate, last_rate))
        recipe: dict[str, Any] = {"rates": rates, "timesteps": timesteps}
        recipe |= {"first_rate": first_rate, "last_rate": last_rate, "zero_terminal_snr": zero_terminal_snr}
        return cls(_with_zero_terminal_snr(table) if zero_terminal_snr else table, recipe=recipe)

    @property
    def first(self) -> float:  # type: ignore[override]
        return float(len(self.alphas_cumprod) - 1)

    def signal_and_sigma(self, t: float) -> tuple[float, float]:
        if t == CLEAN:
            kept = self.final_alpha_cumprod
        elif float(t).is_integer() and 0 <= t <= self.first:
            kept = float(self.alphas_cumprod[int(t)])
        elif 0 < t < self.first:  # as `log_snr` does it, in a tenth of the time: surrogates ask for it all day
            low, high = self._log_snr_table[int(t) : int(t) + 2].tolist()
            kept = 1 / (1 + math.exp(-((high - low) * (t - int(t)) + low)))
        else:
            kept = 1 / (1 + math.exp(-float(self.log_snr(t))))
        return math.sqrt(kept), math.sqrt(1 - kept)

    def log_snr(self, t: ArrayLike) -> Array:
        t = np.asarray(t, dtype=np.float64)
        if t.size and (t.min() < 0 or t.max() > self.first):
            raise NoiseError(f"times must be in 0..{self.first:g}, got {t.min():g}..{t.max():g}")
        return np.interp(t, np.arange(len(self.alphas_cumprod)), self._log_snr_table)

    def time_of_log_snr(self, log_snr: ArrayLike) -> Array:
        falling = self._log_snr_table
        return np.interp(-np.asarray(log_snr, dtype=np.float64), -falling, np.arange(len(falling)))

    @cached_property
    def _log_snr_table(self) -> Array:
        """Exact where it is finite; the infinite ends are put at the limit, or just beyond their neighbour."""
        with np.errstate(divide="ignore"):
            table = np.log(self.alphas_cumprod) - np.log1p(-self.alphas_cumprod)
        if table[-1] == -np.inf:
            table[-1] = min(-LOG_SNR_LIMIT, table[-2] - 1)
        if table[0] == np.inf:
            table[0] = max(LOG_SNR_LIMIT, table[1] + 1)
        return table

    def to_dict(self) -> dict[str, Any]:
        made = self.recipe or {"alphas_cumprod": self.alphas_cumprod.tolist()}
        return {"kind": self.kind, **made, "final_alpha_cumprod": self.final_alpha_cumprod}


@dataclass(frozen=True)
class ContinuousVP(NoiseSchedule):
    """Variance preserving, at real times in (0, 1]: Song et al. (2021), Appendix B."""

    rate_min: float = 0.1
    rate_max: float = 20.0
    last: float = 1e-3  # log-SNR is infinite at 0

    kind: ClassVar[str] = "continuous-vp"
    continuous: ClassVar[bool] = True
    first: ClassVar[float] = 1.0  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not 0 < self.rate_min < self.rate_max:
            raise NoiseError(f"rates must satisfy 0 < rate_min < rate_max, got {self.rate_min} and {self.rate_max}")
        if not 0 < self.last < 1:
            raise NoiseError(f"the last time must be in 0..1, got {self.last}")

    def signal_and_sigma(self, t: float) -> tuple[float, float]:
        if t == CLEAN:
            return 1.0, 0.0
        lost = self._log_alpha(t)
        return math.exp(lost / 2), math.sqrt(-math.expm1(lost))

    def log_snr(self, t: ArrayLike) -> Array:
        lost = self._log_alpha(t)
        with np.errstate(divide="ignore"):
            return np.nan_to_num(lost - np.log(-np.expm1(lost)), posinf=2 * LOG_SNR_LIMIT)

    def time_of_log_snr(self, log_snr: ArrayLike) -> Array:
        # -ln alpha-bar = softplus(-log_snr) is quadratic in t: solve for its positive root.
        lost = np.logaddexp(0, -np.asarray(log_snr, dtype=np.float64))
        rise = self.rate_max - self.rate_min
        return 2 * lost / (self.rate_min + np.sqrt(self.rate_min**2 + 2 * rise * lost))

    def _log_alpha(self, t: ArrayLike) -> Any:
        t = np.asarray(t, dtype=np.float64)
        return -(self.rate_min * t + (self.rate_max - self.rate_min) * t**2 / 2)


@dataclass(frozen=True)
class EDM(NoiseSchedule):
    """Karras et al. (2022): x0 + sigma·eps, divided by sqrt(1 + sigma²) here, so that variance is preserved.

    The seventh root of sigma is linear in the time, which falls from 1 at sigma_max to 0.001 at sigma_min.
    """

    sigma_min: float = 0.002
    sigma_max: float = 80.0
    sigma_data: float = 0.5

    kind: ClassVar[str] = "edm"
    continuous: ClassVar[bool] = True
    first: ClassVar[float] = 1.0  # type: ignore[misc]
    last: ClassVar[float] = 1e-3  # type: ignore[misc]
    rho: ClassVar[float] = 7.0

    def __post_init__(self) -> None:
        if not 0 < self.sigma_min < self.sigma_max < math.inf:
            raise NoiseError(
                f"sigmas must satisfy 0 < sigma_min < sigma_max, got {self.sigma_min} and {self.sigma_max}"
            )
        if not 0 < self.sigma_data < math.inf:
            raise NoiseError(f"sigma_data must be positive, got {self.sigma_data}")

    def signal_and_sigma(self, t: float) -> tuple[float, float]:
        if t == CLEAN:
            return 1.0, 0.0
        sigma = float(self.sigma(t))
        return 1 / math.hypot(1, sigma), sigma / math.hypot(1, sigma)

    def log_snr(self, t: ArrayLike) -> Array:
        return -2 * np.log(self.sigma(t))

    def time_of_log_snr(self, log_snr: ArrayLike) -> Array:
        return self.time_of_sigma(np.exp(-np.asarray(log_snr, dtype=np.float64) / 2))

    def sigma(self, t: ArrayLike) -> Array:
        low, high = self._roots
        share = (np.asarray(t, dtype=np.float64) - self.last) / (self.first - self.last)
        return np.maximum(low + share * (high - low), 0) ** self.rho

    def time_of_sigma(self, sigma: ArrayLike) -> Array:
        low, high = self._roots
        share = (np.asarray(sigma, dtype=np.float64) ** (1 / self.rho) - low) / (high - low)
        return self.last + share * (self.first - self.last)

    @property
    def _roots(self) -> tuple[float, float]:
        return self.sigma_min ** (1 / self.rho), self.sigma_max ** (1 / self.rho)

    def denoiser(self, network: Callable[[Any, Any], Any], preconditioned: bool = True) -> Callable[[Any, float], Any]:
        """What a `Network` with prediction "x0" asks: a network of (x0 + sigma·eps, sigma) that returns x0.

        With preconditioned=False it is the network inside, of (c_in·x, c_noise), as EDM's Table 1 has it.
        """

        def x0(x: Any, t: float) -> Any:
            sigma = float(self.sigma(t))
            x = x * math.hypot(1, sigma)
            if preconditioned:
                return network(x, sigma)
            norm = math.hypot(sigma, self.sigma_data)
            inside = network(x / norm, math.log(sigma) / 4)
            return (self.sigma_data / norm) ** 2 * x + sigma * self.sigma_data / norm * inside

        return x0


@dataclass(frozen=True)
class Flow(NoiseSchedule):
    """Flow matching: x = (1 - s)·x0 + s·eps, at the time t = timesteps·s that the network is told.

    `shift` (Esser et al. 2024) is applied once: it bends the clock in which a spacing is uniform,
    and t is always what comes after it.
    """

    shift: float = 1.0
    timesteps: int = 1000

    kind: ClassVar[str] = "flow"
    continuous: ClassVar[bool] = True
    last: ClassVar[float] = 0.0  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not 0 < self.shift < math.inf:
            raise NoiseError(f"shift must be positive, got {self.shift}")
        if self.timesteps < 1:
            raise NoiseError(f"timesteps must be at least 1, got {self.timesteps}")

    @property
    def first(self) -> float:  # type: ignore[override]
        return float(self.timesteps)

    def signal_and_sigma(self, t: float) -> tuple[float, float]:
        share = 0.0 if t == CLEAN else t / self.timesteps
        return 1 - share, share

    def log_snr(self, t: ArrayLike) -> Array:
        share = np.asarray(t, dtype=np.float64) / self.timesteps
        with np.errstate(divide="ignore"):
            return np.clip(2 * (np.log1p(-share) - np.log(share)), -LOG_SNR_LIMIT, LOG_SNR_LIMIT)

    def time_of_log_snr(self, log_snr: ArrayLike) -> Array:
        return self.timesteps / (1 + np.exp(np.asarray(log_snr, dtype=np.float64) / 2))

    def sigma(self, t: ArrayLike) -> Array:
        return np.asarray(t, dtype=np.float64) / self.timesteps

    def time_of_sigma(self, sigma: ArrayLike) -> Array:
        return np.asarray(sigma, dtype=np.float64) * self.timesteps

    def clock(self, t: ArrayLike) -> Array:
        share = self.sigma(t)
        return share / (share + self.shift * (1 - share))  # exactly 1 at 1

    def time_at(self, clock: ArrayLike) -> Array:
        clock = np.asarray(clock, dtype=np.float64)
        return self.timesteps * clock / (clock + (1 - clock) / self.shift)  # exactly `timesteps` at 1

    def contains(self, t: ArrayLike) -> NDArray[np.bool_]:
        t = np.asarray(t, dtype=np.float64)
        return (t > 0) & (t <= self.first)

    def same_as(self, other: NoiseSchedule) -> bool:
        return super().same_as(other) and isinstance(other, Flow) and math.isclose(self.shift, other.shift)


def noise_from_dict(described: dict[str, Any]) -> NoiseSchedule:
    """Build the schedule that `to_dict` described."""
    given = dict(described)
    kind = given.pop("kind", None)
    try:
        if kind == DiscreteVP.kind and "rates" in given:
            final = given.pop("final_alpha_cumprod", 1.0)
            made = DiscreteVP.named(**given)
            table = made.alphas_cumprod
            if math.isclose(final, table[0], rel_tol=1e-6):  # other tools round their tables to float32
                table[0] = final
            return DiscreteVP(table, final, made.recipe)
        if kind in _KINDS:
            return _KINDS[kind](**given)
    except (TypeError, ValueError) as wrong:
        raise NoiseError(f"cannot build a {kind} noise schedule from {sorted(given)}: {wrong}") from wrong
    raise NoiseError(f"the kind of a noise schedule must be one of {', '.join(_KINDS)}, got {kind!r}")


def _with_zero_terminal_snr(table: Array) -> Array:
    """Lin et al. (2024), Algorithm 1: shift sqrt(alpha-bar) so that it ends at 0, keep its first value."""
    signal = np.sqrt(table)
    return ((signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])) ** 2


def _linear_rates(timesteps: int, first_rate: float, last_rate: float) -> Array:
    return np.linspace(first_rate, last_rate, timesteps)


def _scaled_linear_rates(timesteps: int, first_rate: float, last_rate: float) -> Array:
    return np.linspace(math.sqrt(first_rate), math.sqrt(last_rate), timesteps) ** 2


def _cosine_rates(timesteps: int, first_rate: float, last_rate: float) -> Array:
    edges = np.cos((np.arange(timesteps + 1) / timesteps + 0.008) / 1.008 * np.pi / 2) ** 2
    return np.clip(1 - edges[1:] / edges[:-1], first_rate, last_rate)


_RATES = {
    "linear": (_linear_rates, 1e-4, 0.02),  # with the usual first and last rate
    "scaled_linear": (_scaled_linear_rates, 0.00085, 0.012),
    "cosine": (_cosine_rates, 0.0, 0.999),
}
_KINDS: dict[str, type[Any]] = {c.kind: c for c in (DiscreteVP, ContinuousVP, EDM, Flow)}
