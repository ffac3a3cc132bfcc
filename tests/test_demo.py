from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from geosprint.cli import app
from geosprint.demo import run_demo
from geosprint.models.exact import ring
from geosprint.noise import DiscreteVP, Flow
from geosprint.tuned import Tuned


@pytest.mark.parametrize(
    "model",
    [ring(noise=Flow()), ring(noise=DiscreteVP.named("cosine", 40))],
    ids=["a flow", "fewer timesteps than today's fifty"],
)
def test_the_demo_tunes_and_draws_any_model(model, tmp_path):
    done = run_demo(model, budget_nfe=3000, samples=4, progress=False)
    files = done.save(tmp_path / "new" / "folder")
    assert [path.name for path in files] == ["tuned.json", "side-by-side.png"]
    assert Tuned.load(files[0]).steps == done.tuned.steps
    assert done.tuned.nfe <= 3000


def test_the_verb_ends_with_the_ratio_and_the_report_begins_with_it(tmp_path):
    asked = ["demo", "mixture", "-o", str(tmp_path), "--budget-nfe", "6000", "-n", "8"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    tuned = Tuned.load(tmp_path / "tuned.json")
    headline = f"{tuned.proved} steps match your 50 DDIM steps: {50 / tuned.proved:.1f}× fewer network calls"
    assert headline in done.stdout
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert headline in page
    assert page.count("data:image/webp") == 1  # the pictures are in the page itself
    told = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    assert told["headline"].startswith(headline)
