import importlib
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


def test_every_measure_that_the_page_names_exists():
    modules = {"estimates": "geosprint.estimates", "distances": "geosprint.metrics.distances"}
    named = re.findall(r"`(estimates|distances)\.(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) == 5
    for module, function in named:
        assert callable(getattr(importlib.import_module(modules[module]), function))
