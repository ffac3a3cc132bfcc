"""The first sentence of a report: how many uniform steps have the same error, also when nothing was gained."""

from __future__ import annotations

from dataclasses import dataclass, replace

from geosprint.estimates import UniformSteps
from geosprint.report.columns import TODAYS, UNIFORM, Column, Entry
from geosprint.report.findings import Findings
from geosprint.report.tuned import headline_of as headline_of_tuned
from geosprint.tuned import FITTED


@dataclass(frozen=True)
class Headline:
    """A sentence to begin with, and what must be said beside it."""

    sentence: str
    beside: str = ""
    column: int = 0  # the column that it speaks of


def headline(findings: Findings, columns: list[Column]) -> Headline:
    """Of what was tuned to replace today's steps, else of the best method in the column that says most."""
    for tuned in findings.tuned.values():
        if tuned.today:
            steps = tuned.proved or max(tuned.steps)
            shown = (i for i, column in enumerate(columns) if (column.ruler, column.steps) == (TODAYS, steps))
            return Headline(*headline_of_tuned(tuned), next(shown, 0))
    if measured := [i for i, column in enumerate(columns) if column.rivals]:
        chosen = max(measured, key=lambda i: _says_most(columns[i], columns[measured[0]].solver))
        return replace(headline_of(columns[chosen]), column=chosen)
    for profile in findings.profiles.values():
        counts = profile.retained_counts
        return Headline(
            f"A sample of {profile.origin.model} needs {counts.mean():.0f} of {profile.kept.shape[1]} states",
            f"{counts.min()} to {counts.max()}, at a score of {profile.settings.target_score:g}.",
        )
    for one in (one for tuned in findings.tuned.values() for one in tuned.results):
        return Headline(f"{'A fitted solver' if one.solver == FITTED else 'A schedule'} of {one.steps} steps")
    count = len(findings.experiments)
    return Headline("One experiment of the paper" if count == 1 else f"{count} experiments of the paper")


def _says_most(column: Column, first_solver: str) -> tuple[bool, bool, int]:
    """The first solver before others, a known number of uniform steps before a bound, more steps before fewer."""
    return column.solver == first_solver, column.rivals[0].is_matched, column.steps


def headline_of(column: Column) -> Headline:
    """How the best schedule of a column compares with uniform steps."""
    best, uniform = column.rivals[0], column.best_uniform
    where = f"{column.solver}, {column.samples} samples from held-out noise."
    if best.kind == UNIFORM:
        return Headline(f"No schedule has a lower error than {column.steps} uniform steps", f"{best.name}, {where}")
    beside = f"{_interval(best, uniform)}{where}"
    may_be_chance = uniform is not None and best.gap is not None and best.gap.high >= 0
    return Headline(sentence_of(best, uniform, column.steps), beside + " The gain may be chance." * may_be_chance)


def sentence_of(best: Entry, uniform: Entry | None, steps: int) -> str:
    """So many steps of this schedule against uniform steps, in words."""
    subject, matched = f"{steps} steps of {best.name}", best.matched
    if matched and best.is_matched:
        return f"{subject} match {matched.value:.1f} uniform steps"
    if isinstance(matched, UniformSteps) and matched.is_beyond and matched.most > steps:
        return f"{subject} have a lower error than {matched.most} uniform steps"
    if uniform is None or uniform.error is None or best.error is None:
        return f"{subject} have the lowest error"
    ratio = uniform.error.value / max(best.error.value, 1e-12)
    return f"{subject} have a {ratio:.3g}× lower error than {steps} uniform steps"


def _interval(best: Entry, uniform: Entry | None) -> str:
    """Of the number of uniform steps, or of the difference where only a bound is known."""
    gap = best.gap
    if uniform is None or gap is None:
        return ""
    if best.matched and best.is_matched:
        return f"95 % interval {best.matched.interval}; "
    return f"Error lower by {-gap.value:.3g} than {uniform.name}, 95 % interval {-gap.high:.3g} to {-gap.low:.3g}; "
