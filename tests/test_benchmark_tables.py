"""The tables that benchmarks read from comparisons, on numbers small enough to check by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks import choosing, fit_beside, fit_rivals, quality, tune_ablation, tune_budgets, tune_coverage

COLUMNS = ("model", "solver", "method", "steps", "metric", "value", "low", "high")
CELLS = {  # solver, method, steps: error, its interval, F²
    ("ddim", "uniform-trailing", 5): (0.4, 0.3, 0.5, 8.0),
    ("ddim", "uniform-trailing", 10): (0.2, 0.1, 0.3, 4.0),
    ("ddim", "oss", 5): (0.16, 0.1, 0.2, 6.0),
    ("ddim", "oss", 10): (0.08, 0.05, 0.1, 2.0),
    ("ddim", "ld3-l2", 5): (0.1, 0.1, 0.1, 1.0),
    ("ddim", "tuned", 5): (0.2, 0.15, 0.25, 2.0),
    ("ddim", "tuned", 10): (0.05, 0.04, 0.06, 1.0),
    ("ddim", "fitted", 5): (0.05, 0.04, 0.06, 0.5),
    ("ddim", "fitted", 10): (0.02, 0.01, 0.03, 0.25),
    ("dpmpp-2m", "uniform-trailing", 5): (0.2, 0.1, 0.3, 4.0),
    ("dpmpp-2m", "uniform-trailing", 10): (0.3, 0.1, 0.4, 4.0),
    ("dpmpp-2m", "karras", 5): (0.3, 0.2, 0.4, 1.0),
    ("dpmpp-2m", "karras", 10): (0.015, 0.01, 0.02, 0.125),
    ("dpmpp-2m", "tuned", 5): (0.01, 0.01, 0.01, 0.1),
    ("ddim", "uniform-trailing", 50): (0.06, 0.05, 0.07, 0.5),
}
SOLVER_CELLS = {
    ("unipc", "karras", 5): (0.1, 0.1, 0.1, 2.0),
    ("unipc", "oss", 5): (0.4, 0.4, 0.4, 2.0),
    ("unipc", "karras", 10): (0.005, 0.005, 0.005, 0.5),
}


@pytest.fixture
def results(tmp_path):
    (tmp_path / "fashion").mkdir()
    write(CELLS, tmp_path / "fashion" / "results.csv")
    return tmp_path / "fashion" / "results.csv"


def write(cells, path):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for (solver, method, steps), (error, low, high, frechet) in cells.items():
            writer.writerow(["fashion", solver, method, steps, "rmse", error, low, high])
            writer.writerow(["fashion", solver, method, steps, "frechet-fine", frechet, "", ""])


def test_tuned_schedules_are_set_beside_the_best_uniform_spacing_the_best_rival_and_the_limit(results):
    five, ten = (one for one in quality.judged(results) if one.solver == "ddim")
    assert (five.uniform, five.rival, five.limit) == (("uniform-trailing", 0.4), ("oss", 0.16), 0.1)
    assert five.ties  # the rival lies below, within the interval
    assert five.worth == pytest.approx(10)
    assert (ten.worth, ten.is_worth_more) == (50, True)  # the most that were tried have 0.06
    assert five.frechet == (2.0, 8.0)
    said = quality.report([five, ten])
    assert "- lower RMSE than the best uniform spacing, times: 2.83" in said  # the root of 2 · 4
    assert "- lower RMSE than the best rival, times: 1.13" in said  # the root of 0.8 · 1.6
    assert "- of the limit ld3-l2, times: 2.00" in said
    assert "lowest error of all in 1 of 2 cells, within the interval of the lowest in 1 more" in said


def test_a_rival_below_the_tuned_interval_is_no_tie(results):
    results.write_text(results.read_text().replace("ddim,oss,5,rmse,0.16,", "ddim,oss,5,rmse,0.14,"))
    five, ten = (one for one in quality.judged(results) if one.solver == "ddim")
    assert not five.ties
    assert ten.ties
    said = quality.report([five, ten])
    assert "lowest error of all in 1 of 2 cells, within the interval of the lowest in 0 more" in said


def test_fitted_solvers_are_set_beside_tuned_ddim_and_the_best_schedule_of_every_known_solver(results):
    write(SOLVER_CELLS, results.parent / "solvers.csv")
    five, ten = fit_beside.beside(results.parent)
    assert five.tuned == ("tuned", 0.2, 2.0, 0.15)
    assert five.known["dpmpp-2m"] == ("uniform-trailing", 0.2, 4.0, 0.1)  # what was tuned is no known schedule
    assert five.known["unipc"].method == ten.known["unipc"].method == ten.known["dpmpp-2m"].method == "karras"
    assert five.long is None
    said = fit_beside.report([five, ten])
    assert "| model | K | fitted | tuned+fitted | tuned, first order | dpmpp-2m | unipc |" in said
    assert ("| fashion | 5 | 0.0500 (0.5) | – | 0.2000 (2) | 0.2000 (4) uniform-trailing | 0.1000 (2) karras |") in said
    assert "| tuned, first order | 3.16 | 4.00 | 0 of 2 | 0 |" in said  # roots of 10, 16
    assert "| dpmpp-2m | 1.73 | 2.00 | 1 of 2 | 0 |" in said  # roots of 3, 4
    assert "| unipc | 0.71 | 2.83 | 1 of 2 | 1 |" in said  # roots of 0.5, 8
    assert "| the best of these | 0.71 | 2.83 | 1 of 2 | 1 |" in said
    assert "RMSE of 50 uniform steps of first order over that of 10 fitted ones: fashion 3.00 (`fitted`)." in said


def test_fits_that_were_measured_again_replace_those_before_under_every_solver(results):
    again = {
        ("ddim", "fitted", 5): (0.04, 0.03, 0.05, 0.4),
        ("ddim", "tuned+fitted", 5): (0.02, 0.01, 0.03, 0.2),
    }
    write(CELLS | {("dpmpp-2m", "fitted", 5): CELLS["ddim", "fitted", 5]}, results)
    write(again, results.parent / "fits.csv")
    (five,) = fit_beside.beside(results.parent)  # ten steps were not measured again
    assert [five.fits[name].rmse for name in ("fitted", "tuned+fitted")] == [0.04, 0.02]
    assert five.tuned == ("tuned", 0.2, 2.0, 0.15)


@pytest.mark.parametrize("page", ["fit.md", "tune.md", "results/tune/fits.md"])
def test_pages_say_of_fifty_uniform_steps_what_their_table_says(page):
    docs = Path(__file__).parents[1] / "docs"
    found = [one for one in fit_beside.measured_in(docs / "results" / "tune") if one.model not in quality.EXACT]
    assert fit_beside.few_for_many(found).removesuffix(".") in " ".join((docs / page).read_text().split())


def test_the_page_of_fits_has_the_tables_of_their_runs():
    results = Path(__file__).parents[1] / "docs" / "results" / "tune"
    assert fit_beside.report(fit_beside.measured_in(results)) in (results / "fits.md").read_text(encoding="utf-8")


def test_networks_on_which_few_steps_are_no_better_than_many_are_counted_out():
    def cell(rmse):
        return fit_beside.Cell("", rmse, 0.0, 0.0)

    found = [
        fit_beside.Beside(name, 10, {"tuned+fitted": cell(0.2)}, None, {}, cell(long))
        for name, long in (("one", 0.1), ("other", 0.5))
    ]
    assert "on 1 of 2 bundled networks: those have 0.5 to 2.5 times the error." in fit_beside.few_for_many(found)


def test_ways_to_choose_are_judged_on_the_other_half(tmp_path):
    lands_in_another_mode = np.arange(40) < 4
    unsteady = np.where(lands_in_another_mode, 9.0, 1.5)
    errors = {"steady": np.full(40, 2.0), "unsteady": unsteady, "far": np.full(40, 9.0)}
    for method, of_samples in {**errors, "tuned": np.ones(40)}.items():
        (tmp_path / "fashion" / "cells").mkdir(parents=True, exist_ok=True)
        about = {"geosprint": json.dumps({"solver": "ddim", "method": method, "steps": 5})}
        save_file({"errors": of_samples}, tmp_path / "fashion" / "cells" / f"{method}.safetensors", about)
    (place,) = choosing.places(tmp_path / "fashion").values()
    assert place.tolist() == [errors["steady"].tolist(), errors["unsteady"].tolist()]  # not ours, nor the far one
    found = choosing.judged(place, np.random.default_rng(0))
    assert found["median"] == pytest.approx(2.25, abs=0.05)  # always the unsteady one, whose mean this is
    assert 2.0 < found["mean"] < 2.25  # it is steady where more than two of the four are in the half that chooses
    assert "fashion ddim 5" in choosing.table(tmp_path)


def test_errors_without_a_stage_are_in_multiples_of_the_full_method_of_the_same_run():
    errors = {  # model, seed, what was switched off
        ("digits", 0, tune_ablation.FULL): 0.1,
        ("digits", 0, "secants"): 0.2,
        ("digits", 1000, "secants"): 0.2,
        ("digits", 1000, tune_ablation.FULL): 0.4,
        ("mixture", 0, tune_ablation.FULL): 0.1,
        ("mixture", 0, "secants"): 0.4,
        ("mixture", 0, "published starts"): 0.3,
    }
    rows = [
        {"solver": "ddim", "steps": "5", "budget": "5000", "model": model, "seed": str(seed), "without": without}
        | {"rmse": str(error)}
        for (model, seed, without), error in errors.items()
    ]
    assert tune_ablation.table(rows).splitlines()[2:] == [
        # twice the error and half of it are even; the one run of the other model has four times: the root of 1 times 4
        "| secants | 1.000 (0.500 to 2.000), 2 runs | 4.000, one run | 2.000 |",
        "| published starts | – | 3.000, one run | 3.000 |",
    ]


def test_a_stage_is_switched_off_where_it_can_change_a_tuning():
    known, few, many = (tune_ablation.stages(*run) for run in (("ddim", 5), ("fitted", 5), ("fitted", 10)))
    assert "secants" in known
    assert {*known} & {*few, *many} == {tune_ablation.FULL}
    assert {*few} ^ {*many} == {"moved times", "schedules for DPM++ 2M"}
    for stages in (known, few, many):
        assert len({repr(config) for config in stages.values()}) == len(stages)


def test_rivals_of_fits_have_a_table_each_with_geometric_means_over_seeds_and_cells():
    def row(rival, steps, seed, ours, theirs):
        numbers = (ours, theirs, ours / theirs, 0.5, 1.5)
        return dict(zip(fit_rivals.COLUMNS, map(str, (rival, "cifar10", steps, seed, *numbers)), strict=True))

    rows = [row("bns-l2", 10, 1000, 0.2, 0.1), row("bns-l2", 5, 0, 0.4, 0.4), row("bns-l2", 10, 0, 0.8, 0.1)]
    limit, before = fit_rivals.table([*rows, row("before", 5, 0, 0.1, 0.4)]).split("\n\n")
    assert "| cifar10 | 10 | 0.4000 | 0.1000 | 4.00 | 8.00 (0.50 to 1.50), 2.00 (0.50 to 1.50) |" in limit
    assert limit.index("| cifar10 | 5 |") < limit.index("| cifar10 | 10 |")
    assert limit.endswith("| geometric mean | | | | 2.00 | |")
    assert "| before |" in before
    assert before.endswith("| geometric mean | | | | 0.25 | |")


@pytest.mark.parametrize(
    ("benchmark", "page"),
    [
        (fit_rivals, "results/tune/rivals.md"),
        (tune_ablation, "results/tune/ablation.md"),
        (tune_budgets, "tune.md"),
        (tune_coverage, "tune.md"),
    ],
)
def test_the_table_of_a_page_is_what_its_runs_say(benchmark, page):
    docs = Path(__file__).parents[1] / "docs"
    with (docs.parent / benchmark.RESULTS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 20
    assert benchmark.table(rows) in (docs / page).read_text(encoding="utf-8")
