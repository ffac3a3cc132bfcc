"""What `tune` and `fit` made, in words: the headline, and a table of every number of steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geosprint.report.tables import Table
from geosprint.solvers import predictions_of_walk
from geosprint.tuned import OURS, TODAY, Tuned


def headline_of(tuned: Tuned) -> tuple[str, str]:
    """How many steps replace today's and how sure that is, or that none do; what must be said beside it."""
    one = tuned.result(tuned.proved or max(tuned.steps))
    if tuned.today is None or not {OURS, TODAY} <= one.errors.keys():
        how = " or ".join(dict.fromkeys(each.solver or "any solver" for each in tuned.results))
        return f"{one.steps} steps, {how}", f"Error {one.error()}." if OURS in one.errors else ""
    samples, errors = len(one.errors[TODAY]), f"Error {one.error()} against {one.error(TODAY)}"
    wish = f"match your {tuned.today}" if tuned.target_error is None else f"reach an error of {tuned.target_error:g}"
    if tuned.proved is None:
        beside = f"{errors} today, on {samples} held-out samples; more network calls may prove more."
        return f"No number of steps up to {one.steps} is proved to {wish}", beside
    if tuned.target_error is not None:
        return f"{one.steps} steps {wish}", f"{errors} today: with 95 % confidence, on {samples} held-out samples."
    fewer = calls_of(tuned, tuned.today.solver, tuned.today.steps) / calls_of(tuned, one.solver, one.steps)
    return (
        f"{one.steps} steps match your {tuned.today}: {fewer:.1f}× fewer network calls",
        f"{errors}: not worse with 95 % confidence, paired on {samples} held-out samples.",
    )


def table_of(tuned: Tuned) -> Table:
    """Every number of steps with its error, what it equals and what it costs; the proved one is strong."""
    header = ["K", "error", "95 % interval", "today's steps", "calls per image"]
    rows: list[tuple[object, ...]] = []
    for one in tuned.results:
        error = one.error() if OURS in one.errors else None
        said = (f"{error.value:.4g}", error.interval) if error else ("–", "–")
        rows.append((one.steps, *said, one.today_steps or "–", calls_of(tuned, one.solver, one.steps)))
    if tuned.today and TODAY in (last := tuned.results[-1]).errors:
        error, today = last.error(TODAY), tuned.today
        name, calls = f"today, {today}", calls_of(tuned, today.solver, today.steps)
        rows.append((name, f"{error.value:.4g}", error.interval, today.steps, calls))
    return Table.of(header, rows, strong=tuned.proved)


def show_tuned(tuned: Tuned, files: Sequence[Path]) -> None:
    """The table, the headline, and where the files are."""
    table_of(tuned).show()
    print("\n".join(filter(None, headline_of(tuned))))
    for file in files:
        print(f"→ {file}")


def calls_of(tuned: Tuned, solver: str | None, steps: int) -> int:
    """Network calls per image."""
    per_step = tuned.made_for.get("calls")
    return predictions_of_walk(solver, steps) * (max(per_step, 1) if isinstance(per_step, int) else 1)
