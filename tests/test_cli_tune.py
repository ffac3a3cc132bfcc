from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from geosprint.baselines import baseline_schedule
from geosprint.cli import app
from geosprint.models.exact import ring
from geosprint.sampling import sample
from geosprint.tuned import OURS, Tuned

runner = CliRunner()


def run(*words):
    done = runner.invoke(app, ["tune", "mixture", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done


def test_with_no_word_but_the_model_it_ends_with_a_proved_number_of_steps_and_how_to_use_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run()
    tuned = Tuned.load("tuned.json")
    fewer = 50 / tuned.proved
    assert fewer > 5
    assert f"{tuned.proved} steps match your 50 DDIM steps: {fewer:.1f}× fewer network calls" in done.stdout
    assert "not worse with 95 % confidence" in done.stdout
    assert all(f"{one.error().value:.4g}" in done.stdout for one in tuned.results)
    command = done.stdout.splitlines()[-1]
    assert command == "geosprint sample mixture --schedule tuned.json -n 16 -o samples.png"
    assert (tmp_path / "tuned.html").stat().st_size > 5000
    used = runner.invoke(app, [*command.split()[1:-1], "samples.safetensors"])
    assert used.exit_code == 0, used.output
    assert sample(ring(), tuned, range(2)).isfinite().all()


def test_several_numbers_of_steps_are_one_file_and_json_tells_all(tmp_path):
    out = tmp_path / "mine.json"
    done = run("--steps", "4,3", "--solver", "dpmpp-2m", "--budget-nfe", 4000, "-o", out, "--json")
    told = json.loads(done.stdout)
    assert [one["steps"] for one in told["results"]] == [3, 4]
    assert {one["solver"] for one in told["results"]} == {"dpmpp-2m"}
    assert told["nfe"] <= 4000
    written = Tuned.load(out)
    for one, listed in zip(written.results, told["results"], strict=True):
        assert one.schedule.timesteps.tolist() == listed["timesteps"]
        assert listed["errors"][OURS]["mean"] == pytest.approx(one.errors[OURS].mean(), rel=1e-5)


def test_a_schedule_must_beat_the_one_it_is_given(tmp_path):
    yours, out = tmp_path / "yours.json", tmp_path / "better.json"
    schedule = baseline_schedule("quadratic", ring().noise, 3)
    schedule.save(yours)
    run("--steps", 3, "--solver", "ddim", "--budget-nfe", 4000, "-o", out, "--against", yours)
    (one,) = Tuned.load(out).results
    assert one.errors[OURS].mean() < one.errors["yours"].mean()
    assert not np.array_equal(one.schedule.timesteps, schedule.timesteps)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["--steps", "five"], "whole numbers"),
        (["--steps", "5", "--solver", "ddpm"], "fresh noise"),
        (["--steps", "5", "--budget-nfe", "10"], "at least"),
        (["--steps", "5", "-o", "schedule.png"], "must end in .json"),
        (["--steps", "5", "--against", "missing.json"], "missing.json"),
        (["--steps", "5", "--measure", "beauty"], "beauty"),
        (["--today", "fifty"], "ddim:50"),
    ],
)
def test_mistakes_are_one_sentence(asked, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    from geosprint.cli import main

    monkeypatch.setattr("sys.argv", ["geosprint", "tune", "mixture", *asked])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())
