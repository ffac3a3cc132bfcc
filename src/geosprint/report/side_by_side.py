"""Schedules side by side: their errors, their steps and their samples."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from geosprint.report.charts import short
from geosprint.report.columns import Column, Entry
from geosprint.report.plots import grid
from geosprint.report.tables import Table, number

Name = TypeVar("Name")

COLUMNS = 5
WIDEST = 96  # pixels of one sample; larger ones are shrunk
MOST_BYTES = 2_400_000  # of all pictures of a page
LARGEST_FIGURE = 2**24  # bytes of a figure that is read


def are_pictures(samples: Tensor) -> bool:
    """Grey or coloured images, as opposed to points and latents."""
    return samples.ndim == 4 and samples.shape[1] in (1, 3)


def sheets(samples: Mapping[Name, Tensor]) -> dict[Name, str]:
    """A sheet of each set of samples as a data URI, of fewer samples each where all would be too much."""
    for count in (2 * COLUMNS, COLUMNS, 2, 1):
        made = {name: sheet(of_one[:count]) for name, of_one in samples.items()}
        if sum(map(len, made.values())) <= MOST_BYTES:
            return made
    return {}


def sheet(samples: Tensor) -> str:
    """Samples in rows of five."""
    if max(samples.shape[2:]) > WIDEST:
        ratio = WIDEST / max(samples.shape[2:])
        size = [max(1, round(side * ratio)) for side in samples.shape[2:]]
        samples = torch.nn.functional.interpolate(samples.float(), size=size, mode="area")
    pixels = (grid(samples, min(COLUMNS, len(samples))) * 255).round().astype(np.uint8)
    return data_uri(Image.fromarray(pixels))


def figure(path: Path) -> str | None:
    """A figure from a file, if it is there and is one."""
    try:
        if path.stat().st_size > LARGEST_FIGURE:
            return None
        with Image.open(path, formats=["PNG"]) as image:
            return data_uri(image.convert("RGB"))
    except (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def data_uri(image: Image.Image) -> str:
    """Without loss, as WebP."""
    held = io.BytesIO()
    image.save(held, format="WEBP", lossless=True, quality=80, method=4)
    return "data:image/webp;base64," + base64.b64encode(held.getvalue()).decode("ascii")


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
    return Table(header, lines, f"{column.label}, nearest first." if column.samples else f"{column.label}.")


def in_uniform_steps(entry: Entry) -> str:
    """What an entry is worth, in few words."""
    worth = entry.worth
    if worth is None or worth.fewest == worth.most:
        return "–"
    if worth.is_below:
        return f"at most {worth.fewest}"
    if worth.is_beyond:
        return f"{worth.most} or more"
    return f"{worth.value:.1f} ({worth.interval})"


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
