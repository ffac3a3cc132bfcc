from __future__ import annotations

import csv
import json

import pytest

FAST = ["--steps", "3,4", "-n", "12", "--trajectories", "4", "--reference-steps", "20", "--fine-steps", "10"]
FEW = ["--methods", "uniform-trailing,quadratic,geosprint"]


def test_compare_prints_a_table_and_leaves_its_files(run, tmp_path):
    code, out, _ = run("compare", "mixture", *FAST, *FEW, "-o", tmp_path / "new")
    assert code == 0
    for said in (
        "uniform-trailing",
        "quadratic",
        "geosprint",
        "K=3",
        "K=4",
        "12 samples from held-out noise",
        "results.csv",
    ):
        assert said in out
    page = (tmp_path / "new" / "results.md").read_text()
    assert page.splitlines()[3].startswith("geosprint compare mixture --steps 3,4 -n 12")


def test_compare_speaks_json(run, tmp_path):
    code, out, _ = run("compare", "mixture", *FAST, *FEW, "--solver", "ddim,heun", "-o", tmp_path, "--json")
    assert code == 0
    columns = json.loads(out)["columns"]
    assert [(column["solver"], column["steps"]) for column in columns] == [
        ("ddim", 3),
        ("ddim", 4),
        ("heun", 3),
        ("heun", 4),
    ]


def test_a_ruler_measures_uniform_spacings_at_more_steps(run, tmp_path):
    code, _, _ = run("compare", "mixture", *FAST, *FEW, "--ruler", "6,9", "-o", tmp_path)
    assert code == 0
    with (tmp_path / "results.csv").open(newline="") as file:
        measured = {(row["method"], int(row["steps"])) for row in csv.DictReader(file)}
    assert {steps for method, steps in measured if method == "uniform-trailing"} == {3, 4, 6, 9}
    assert {steps for method, steps in measured if method == "quadratic"} == {3, 4}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--steps", "5,x"], "whole numbers separated by commas, got 'x'"),
        (["--ruler", "30,x"], "whole numbers separated by commas, got 'x'"),
        (["--steps", ","], "at least one number of steps"),
        (["--solver", "magic"], "solver must be one of"),
        (["--methods", "karas"], "did you mean karras?"),
        (["--features", "magic"], "no features 'magic'"),
        (["--statistics", "missing.npz"], "cannot read missing.npz"),
        (["--label", "3"], "takes neither"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(run, tmp_path, options, said):
    code, _, err = run("compare", "mixture", *options, "-o", tmp_path / "new")
    assert code == 2
    assert said in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_away_from_a_terminal_progress_comes_in_lines_while_a_cell_is_tuned(run, tmp_path, monkeypatch):
    monkeypatch.setattr("geosprint.runs.progress.EVERY", 0.02)  # seconds between lines
    few = ["--steps", "3", "-n", "10", "--fine-steps", "5"]
    code, _, err = run("compare", "mixture", *few, "--methods", "uniform-trailing,tuned", "-o", tmp_path)
    assert code == 0
    lines = [line for line in err.splitlines() if line.startswith("compare, about: ")]
    # Heun takes two calls a step but the last, each of two methods three; and tuning has a budget.
    total = 10 * (2 * 5 - 1 + 2 * 3) + 20_000
    assert all(f" of {total:,} calls" in line for line in lines)
    while_tuning = [line for line in lines if line.endswith("ddim tuned 3")]
    calls = [int(line.split()[2].replace(",", "")) for line in while_tuning]
    assert calls == sorted(calls)
    assert len(set(calls)) > 3


def test_an_interrupted_comparison_says_how_to_go_on(run, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("geosprint.comparison.run.sample", stop)
    code, _, err = run("compare", "mixture", *FAST, *FEW, "-o", tmp_path)
    assert code == 130
    assert "the same command goes on" in err
