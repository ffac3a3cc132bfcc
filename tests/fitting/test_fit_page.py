"""docs/fit.md says what is."""

import re
from pathlib import Path

import geosprint
from geosprint.integrations import fitted_schedulers

PAGE = (Path(__file__).parents[2] / "docs" / "fit.md").read_text(encoding="utf-8")


def test_the_python_example_runs_and_prints_its_error(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    found = {}
    exec(example, found)
    errors = found["fitted"].result().errors
    assert errors["this"].mean() == min(some.mean() for some in errors.values())
    assert str(found["fitted"].result().error()) in capsys.readouterr().out
    assert found["samples"].shape == (16, 1, 8, 8)


def test_every_name_of_ours_that_the_page_uses_exists():
    for name in re.findall(r"geosprint\.(\w+)", PAGE.replace("geosprint.json", "")):
        assert hasattr(geosprint, name), name
    for name in re.findall(r"`(GeoSprint\w+)`", PAGE):
        assert hasattr(fitted_schedulers, name), name
