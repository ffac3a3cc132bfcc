"""The parts of a report about schedules side by side: their errors, their steps and their samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from geosprint.page.columns import Column, Entry
from geosprint.page.numbers import Table, number, short
from geosprint.page.pictures import are_pictures, sheets

FINE = "the fine solve"
NO_PICTURES = "Samples are not shown: they are no pictures of one or three channels, or too large for a page."
NO_CELLS = (
    "Steps and samples are not shown: the cells of this comparison are not beside it, or another version of geosprint "
    "made them; the same command measures them again."
)


def series_of(columns: list[Column]) -> list[dict[str, Any]]:
    """What the charts of each column show."""
    samples = {
        (i, name): drawn
        for i, column in enumerate(columns)
        for name, drawn in _samples(column).items()
        if drawn is not None and are_pictures(drawn)
    }
    pictures = sheets(samples)
    return [
        _plain(column, {name: uri for (j, name), uri in pictures.items() if j == i}) for i, column in enumerate(columns)
    ]


def missing_parts(columns: list[Column], series: list[dict[str, Any]]) -> list[str]:
    """A sentence for what a comparison should show and does not."""
    measured = [column for column in columns if column.samples]
    if measured and not any(entry.schedule for column in measured for entry in column.entries):
        return [NO_CELLS]
    if any(column.fine is not None for column in measured) and not any(one["fine"] for one in series):
        return [NO_PICTURES]
    return []


def table_of(column: Column) -> Table:
    """The numbers of a column, nearest first."""
    header = ["schedule", column.measure or "error", "95 % interval", "worth in uniform steps", "steps at t"]
    lines = []
    for entry in column.entries:
        error, times = entry.error, entry.schedule.timesteps if entry.schedule else None
        lines.append(
            [
                entry.name + (" (limit)" if entry.kind == "limit" else ""),
                number(error.value) if error else "–",
                f"{error.low:.4g} to {error.high:.4g}" if error else "–",
                in_uniform_steps(entry),
                ", ".join(f"{t:.4g}" for t in times) if times is not None else "–",
            ]
        )
    return Table(f"{column.label}, nearest first." if column.samples else f"{column.label}.", header, lines)


def in_uniform_steps(entry: Entry) -> str:
    """What an entry is worth, in few words."""
    worth = entry.worth
    if worth is None or worth.fewest == worth.most:
        return "–"
    if worth.is_below:
        return f"at most {worth.fewest}"
    if worth.is_beyond:
        return f"{worth.most} or more"
    return f"{worth.steps:.1f} ({worth.interval})"


def _samples(column: Column) -> dict[str, Tensor | None]:
    return {FINE: column.fine, **{entry.name: entry.pictures for entry in column.entries}}


def _plain(column: Column, pictures: Mapping[str, str]) -> dict[str, Any]:
    return {
        "label": column.label,
        "measure": column.measure,
        "fine": pictures.get(FINE),
        "entries": [_plain_entry(entry, pictures.get(entry.name)) for entry in column.entries],
    }


def _plain_entry(entry: Entry, picture: str | None) -> dict[str, Any]:
    error, schedule = entry.error, entry.schedule
    return {
        "name": entry.name,
        "kind": entry.kind,
        "error": short([error.value, error.low, error.high]) if error else None,
        "worth": in_uniform_steps(entry),
        "places": {
            "t": short(schedule.timesteps),
            "sigma": short(schedule.sigmas[:-1]),
            "logsnr": short(schedule.log_snr),
        }
        if schedule
        else None,
        "picture": picture,
    }
