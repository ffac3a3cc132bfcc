import importlib
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


def test_every_measure_that_the_page_names_exists():
    named = re.findall(r"`(estimates|distances)\.(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) == 5
    for room, function in named:
        assert callable(getattr(importlib.import_module(f"geosprint.metrics.{room}"), function))
