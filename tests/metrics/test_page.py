import importlib
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compare.md"


def test_the_example_of_the_page_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (example,) = [text for text in examples if "geosprint.metrics" in text]
    exec(example, {})
    assert len(list((tmp_path / "samples").glob("*.png"))) == 64
    assert "KernelDistance(value=" in capsys.readouterr().out


def test_every_measure_that_the_page_names_exists():
    named = re.findall(r"`(estimates|distances)\.(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) == 5
    for room, function in named:
        assert callable(getattr(importlib.import_module(f"geosprint.metrics.{room}"), function))
