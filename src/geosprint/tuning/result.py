"""What tuning gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from geosprint.metrics.endpoint import Estimate
from geosprint.schedule import StepSchedule
from geosprint.tuning.search import Found
from geosprint.tuning.validation import LONGEST, TUNED, Verdict


@dataclass(frozen=True, eq=False)
class Tuned:
    """A schedule for one number of steps, the figures it was chosen by, and what it cost."""

    schedule: StepSchedule
    solver: str
    measure: str
    verdict: Verdict
    found: Found
    frechet: dict[str, float]  # of the chosen and the old schedule, to the fine walks' ends
    nfe: int  # network calls, what several numbers of steps share counted in full

    @property
    def is_tuned(self) -> bool:
        """Whether the search beat every closed form."""
        return self.verdict.chosen == TUNED

    @property
    def error(self) -> Estimate:
        """Of the schedule, on walks that it was not made from."""
        return self.verdict.error(self.verdict.chosen)

    @property
    def old_error(self) -> Estimate:
        """Of what users have."""
        return self.verdict.error(self.verdict.old)

    def summary(self) -> dict[str, Any]:
        """For a file: everything but the walks."""
        verdict, gain, steps = self.verdict, self.verdict.gain, self.verdict.uniform_steps
        return {
            "steps": len(self.schedule),
            "solver": self.solver,
            "measure": self.measure,
            "chosen": verdict.chosen,
            "old": verdict.old,
            "errors": {name: _plain(verdict.error(name)) for name in verdict.errors},
            "gain": _plain(gain),
            "uniform": verdict.uniform,
            "uniform_steps": _plain(steps),
            "frechet": self.frechet,
            "grown_from": self.found.origin_of(self.verdict.trials[TUNED].times),
            "nfe": self.nfe,
        }

    @property
    def headline(self) -> str:
        """One sentence for people."""
        k, verdict, gain, steps = len(self.schedule), self.verdict, self.verdict.gain, self.verdict.uniform_steps
        if not self.is_tuned:
            return f"{k} steps: nothing was surely nearer than {verdict.chosen} ({self.error.value:.4f}), so take that"
        worth = f"{steps.value:.1f} ({steps.low:.1f} to {steps.high:.1f})" if steps else f"more than {LONGEST * k}"
        return (
            f"{k} tuned steps err {gain.value:.2f} times less ({gain.low:.2f} to {gain.high:.2f}) than {k} of "
            f"{verdict.old}, {self.error.value:.4f} against {self.old_error.value:.4f}, "
            f"and as little as {worth} of {verdict.uniform}"
        )


def _plain(estimate: Estimate | None) -> dict[str, float] | None:
    return None if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}
