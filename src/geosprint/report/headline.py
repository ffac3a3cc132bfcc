"""The first sentence of a report: what so many steps are worth, also when that is nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from geosprint.report.columns import UNIFORM, Column, Entry
from geosprint.report.findings import Findings


@dataclass(frozen=True)
class Headline:
    """A sentence to begin with, and what must be said beside it."""

    sentence: str
    beside: str = ""
    column: int = 0  # the column that it speaks of


def headline(findings: Findings, columns: list[Column]) -> Headline:
    """Of the nearest schedule in the column that says most, else of whatever is there."""
    if measured := [i for i, column in enumerate(columns) if column.rivals]:
        chosen = max(measured, key=lambda i: _telling(columns[i], columns[measured[0]].solver))
        return replace(headline_of(columns[chosen]), column=chosen)
    for profile in findings.profiles.values():
        counts = profile.retained_counts
        return Headline(
            f"A sample of {profile.origin.model} needs {counts.mean():.0f} of {profile.kept.shape[1]} states",
            f"{counts.min()} to {counts.max()}, at a score of {profile.settings.target_score:g}.",
        )
    for schedule in findings.schedules.values():
        return Headline(f"A schedule of {len(schedule)} steps")
    for fitted in findings.solvers.values():
        return Headline(f"A fitted solver of {len(fitted)} steps")
    if count := len(findings.experiments):
        return Headline("One experiment of the paper" if count == 1 else f"{count} experiments of the paper")
    return Headline("Nothing was measured here")


def _telling(column: Column, first_solver: str) -> tuple[bool, bool, int]:
    """The first solver before others, a known number of uniform steps before a bound, more steps before fewer."""
    return column.solver == first_solver, column.rivals[0].is_matched, column.steps


def headline_of(column: Column) -> Headline:
    """What the nearest schedule of a column is worth."""
    best, uniform = column.rivals[0], column.best_uniform
    if best.kind == UNIFORM:
        return Headline(
            f"No schedule is nearer than {column.steps} uniform steps",
            f"{best.name}, {column.solver}, {column.samples} samples.",
        )
    return Headline(worth_of(best, uniform, column.steps), _beside(best, uniform, column))


def worth_of(entry: Entry, uniform: Entry | None, steps: int) -> str:
    """So many steps of this schedule in uniform steps, in words."""
    subject, worth = f"{steps} steps of {entry.name}", entry.worth
    if worth and entry.is_matched:
        return f"{subject} match {worth.value:.1f} uniform steps"
    if worth and worth.is_beyond and worth.most > steps:
        return f"{subject} err less than {worth.most} uniform steps"
    if uniform is None or uniform.error is None or entry.error is None:
        return f"{subject} are nearest"
    return (
        f"{subject} err {uniform.error.value / max(entry.error.value, 1e-12):.3g} times less than {steps} uniform steps"
    )


def _beside(best: Entry, uniform: Entry | None, column: Column) -> str:
    """The interval, and whether chance could do the same."""
    where = f"{column.solver}, {column.samples} samples from fresh noise."
    gap = best.behind_uniform
    if uniform is None or gap is None:
        return where
    chance = " The gain may be chance." if gap.high >= 0 else ""
    if best.worth and best.is_matched:
        return f"95 % interval {best.worth.interval}; {where}{chance}"
    said = f"{-gap.value:.3g} nearer than {uniform.name}, 95 % interval {-gap.high:.3g} to {-gap.low:.3g}"
    return f"{said}; {where}{chance}"
