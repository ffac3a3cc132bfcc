from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from geosprint.comparison.cells import Memory, ReferenceSolve
from geosprint.comparison.plan import FRESH_SEED, Plan
from geosprint.comparison.results import Comparison, write_csv
from geosprint.comparison.run import compare
from geosprint.errors import FileError, GeoSprintError
from geosprint.estimates import bootstrap_mean, endpoint_errors
from geosprint.integrations.adapter import load_model
from geosprint.models.base import Network
from geosprint.models.exact import Gaussian, Mixture, digits, ring
from geosprint.noise import Flow
from geosprint.report.comparison import headlines, leave_files, markdown, show_comparison, table_of
from geosprint.sampling import sample
from geosprint.teacher import fine_timesteps

SMALL = Plan(
    steps=(4, 6),
    methods=("uniform-leading", "uniform-trailing", "quadratic", "gits", "geosprint"),
    samples=24,
    trajectories=8,
    reference_steps=30,
    fine_steps=40,
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("compare")
    return out, compare(ring(), out, SMALL)


def test_a_plan_and_its_fields_as_keywords_are_the_same_comparison(done, tmp_path):
    out, comparison = done
    fields = {name: getattr(SMALL, name) for name in ("samples", "trajectories", "reference_steps", "fine_steps")}
    by_name = compare(ring(), out, steps=[6, 4], methods=list(SMALL.methods), **fields)
    assert by_name.plan == comparison.plan
    assert [row.__dict__ for row in by_name.rows] == [row.__dict__ for row in comparison.rows]
    one = compare(ring(), out, SMALL, steps=4, solvers="ddim", methods="quadratic")
    assert [(cell.method, cell.steps) for cell in one.cells] == [("quadratic", 4)]


def test_without_a_directory_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    comparison = compare(ring(), steps=4, methods="quadratic", samples=10, fine_steps=10)
    assert comparison.winner("ddim", 4).method == "quadratic"
    assert list(tmp_path.iterdir()) == []


def test_every_method_is_measured_at_every_number_of_steps(done):
    _, comparison = done
    places = [(cell.solver, cell.method, cell.steps) for cell in comparison.cells]
    assert places == [("ddim", method, k) for method in SMALL.methods for k in (4, 6)]


def test_errors_are_those_of_fresh_samples_to_a_fine_solve_from_the_same_noise(done):
    _, comparison = done
    cell = comparison.cell("ddim", "geosprint", 6)
    seeds = range(FRESH_SEED, FRESH_SEED + 24)
    fine = sample(ring(), fine_timesteps(ring().noise, 40), seeds, "heun")
    np.testing.assert_allclose(cell.errors, endpoint_errors(sample(ring(), cell.timesteps, seeds), fine), rtol=1e-5)
    very_fine = sample(ring(), np.arange(999.0, -1, -1), seeds)
    assert endpoint_errors(fine, very_fine).max() < 0.1 * cell.errors.mean()


def test_methods_that_look_at_trajectories_pay_for_them_and_closed_forms_for_nothing(done):
    _, comparison = done
    paid = {cell.method: cell.build_nfe for cell in comparison.cells}
    assert paid["gits"] == paid["geosprint"] == 8 * 30
    assert paid["quadratic"] == paid["uniform-leading"] == 0


def test_calls_are_counted_by_the_model_and_not_by_the_schedule(tmp_path):
    plan = replace(SMALL, methods=("quadratic",), steps=(4,), solvers=("heun", "ddim"))
    cells = compare(ring(), tmp_path, plan).cells
    assert [cell.nfe for cell in cells] == [7, 4]  # Heun looks twice at every step but the last


def test_guidance_counts_two(tmp_path):
    guided = load_model("fashion", label=3, guidance=2.0)
    plan = Plan((2,), methods=("quadratic",), samples=10, fine_steps=2)
    assert compare(guided, tmp_path, plan).cells[0].nfe == 4


def test_the_gap_is_paired_with_the_best_uniform_spacing(done):
    _, comparison = done
    uniform = min(
        (comparison.cell("ddim", f"uniform-{kind}", 4) for kind in ("leading", "trailing")),
        key=lambda cell: cell.errors.mean(),
    )
    ours = comparison.cell("ddim", "gits", 4)
    row = comparison.value(ours, "rmse-gap")
    expected = bootstrap_mean(ours.errors - uniform.errors)
    assert (row.value, row.low, row.high) == (expected.value, expected.low, expected.high)
    assert comparison.value(uniform, "rmse-gap").value == 0


def test_the_csv_has_the_promised_columns_and_a_line_per_number(done, tmp_path):
    _, comparison = done
    write_csv(comparison.rows, tmp_path / "results.csv")
    with open(tmp_path / "results.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == [
        "model", "solver", "method", "steps", "nfe", "metric", "value", "low", "high",
        "build_nfe", "build_seconds", "start", "build_backprops",
    ]  # fmt: skip
    assert len(lines) == len(comparison.rows)
    found = {line["metric"] for line in lines}
    assert found == {"rmse", "rmse-gap", "frechet-fine", "kid-fine", "sliced-fine"}  # points are no pictures: no PSNR
    line = next(x for x in lines if (x["method"], x["steps"], x["metric"]) == ("uniform-leading", "6", "rmse"))
    assert float(line["start"]) == 166 * 5
    assert float(line["low"]) < float(line["value"]) < float(line["high"])


def test_a_second_run_asks_the_model_for_nothing_but_what_is_new(tmp_path):
    asked = []
    exact = ring()

    def ask(x, t):
        asked.append(len(x))
        return exact(x, t)

    model = Network(ask, exact.shape, exact.noise, "x0", name="watched")
    plan = replace(SMALL, methods=("uniform-trailing", "quadratic"), steps=(4,), batch=100)
    first = compare(model, tmp_path, plan)
    asked.clear()
    again = compare(model, tmp_path, plan)
    assert asked == [2, 2, 1] + [1] * 4  # that it repeats itself; a short walk, to see that it is the same model
    np.testing.assert_array_equal(first.cells[1].errors, again.cells[1].errors)
    assert [row.__dict__ for row in first.rows] == [row.__dict__ for row in again.rows]
    asked.clear()
    more = compare(model, tmp_path, replace(plan, steps=(4, 5)))
    assert sum(asked) == 5 + 4 + 2 * 5 * 24
    assert len(more.cells) == 4


def test_what_was_built_for_one_solver_is_not_built_again_for_another(tmp_path, monkeypatch):
    plan = replace(SMALL, methods=("gits", "fitted", "weighted-path"), steps=(4,))
    both = replace(plan, solvers=("ddim", "dpmpp-2m"))
    at_once = compare(ring(), tmp_path / "at once", both)
    compare(ring(), tmp_path / "one by one", plan)
    monkeypatch.setattr("geosprint.comparison.run.build", lambda method, *asked: pytest.fail(f"{method.name} again"))
    one_by_one = compare(ring(), tmp_path / "one by one", both)
    for method in plan.methods:
        expected, found = (run.cell("dpmpp-2m", method, 4) for run in (at_once, one_by_one))
        assert found.build_nfe == expected.build_nfe
        assert found.own_solver == expected.own_solver == (method == "fitted")
        np.testing.assert_array_equal(found.timesteps, expected.timesteps)
        np.testing.assert_array_equal(found.errors, expected.errors)
    with pytest.raises(pytest.fail.Exception, match="tuned again"):  # made for a solver
        compare(ring(), tmp_path / "one by one", replace(both, methods=("tuned",)))


def test_a_damaged_cell_is_measured_again(tmp_path):
    plan = replace(SMALL, methods=("quadratic",), steps=(4,))
    first = compare(ring(), tmp_path, plan)
    (path,) = tmp_path.glob("cells/*quadratic*")
    path.write_bytes(path.read_bytes()[:100])
    np.testing.assert_array_equal(compare(ring(), tmp_path, plan).cells[0].errors, first.cells[0].errors)


@pytest.mark.parametrize("changed", ["errors", "features", "pictures", "timesteps", "nfe"])
def test_a_cell_of_which_anything_was_changed_is_measured_again(tmp_path, changed):
    plan = replace(SMALL, methods=("quadratic",), steps=(4,))
    first = compare(ring(), tmp_path, plan).cells[0]
    (path,) = tmp_path.glob("cells/*quadratic*")
    tensors, said = load_file(path), metadata(path)
    if changed == "nfe":
        said["geosprint"] = json.dumps({**json.loads(said["geosprint"]), "nfe": first.nfe + 1})
    else:
        tensors[changed].view(-1)[0] += 1
    save_file(tensors, path, said)
    again = compare(ring(), tmp_path, plan).cells[0]
    assert again.nfe == first.nfe
    for name in ("errors", "features", "pictures", "timesteps"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))


def test_what_has_no_checksum_is_not_trusted(tmp_path):
    memory, key = Memory(tmp_path), {"model": "fine"}
    memory.keep(key, ReferenceSolve(torch.ones(3, 2), torch.ones(3, 4)))
    (path,) = tmp_path.iterdir()
    said = json.loads(metadata(path)["geosprint"])
    del said["sha256"]
    save_file(load_file(path), path, {"geosprint": json.dumps(said)})
    assert memory.recall_reference(key) is None


def metadata(path):
    with safe_open(path, "pt") as file:
        return file.metadata()


def test_an_interrupted_comparison_keeps_what_is_done(tmp_path):
    exact, calls = ring(), []

    def ask(x, t):
        calls.append(t)
        if len(calls) > 3 + 4 + 79 + 4 + 2:  # checks, short walk, fine solve, first cell, half of the second
            raise KeyboardInterrupt
        return exact(x, t)

    plan = replace(SMALL, methods=("uniform-trailing", "quadratic"), steps=(4,), batch=32)
    with pytest.raises(KeyboardInterrupt):
        compare(Network(ask, exact.shape, exact.noise, "x0", name="mixture"), tmp_path, plan)
    assert [path.name.rsplit("-", 1)[0] for path in sorted(tmp_path.glob("cells/ddim*"))] == ["ddim-uniform-trailing-4"]


def test_results_of_another_model_are_not_mixed_in(tmp_path):
    plan = replace(SMALL, methods=("quadratic",), steps=(4,))
    compare(ring(), tmp_path, plan)
    wider = Mixture(ring().means * 1.5, 0.1)
    with pytest.raises(FileError, match="another model"):
        compare(wider, tmp_path, plan)


def test_results_that_no_longer_say_of_which_model_they_are_are_not_used(tmp_path):
    memory = Memory(tmp_path)
    memory.refuse_another_model(ring())
    path = tmp_path / "manifest.json"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FileError, match=r"manifest\.json is not a whole JSON file"):
        memory.refuse_another_model(ring())


def test_results_of_an_earlier_version_are_not_mixed_in(tmp_path):
    (tmp_path / "probe-0123456789ab.safetensors").touch()
    with pytest.raises(FileError, match="an earlier version of geosprint; name another directory with -o"):
        Memory(tmp_path).refuse_another_model(ring())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": ()}, "at least one number of steps"),
        ({"steps": (1,)}, "at least 2"),
        ({"solvers": ("dopri",)}, "solver must be one of"),
        ({"solvers": ("ddpm",)}, "fresh noise"),
        ({"solvers": ("fitted",)}, "ask for them among the methods"),
        ({"samples": 5}, "at least 10 samples"),
        ({"trajectories": 1}, "at least 2 recorded"),
        ({"methods": ("magic",)}, "methods must be among .*, got 'magic'$"),
        ({"methods": ("tunned",)}, r"got 'tunned'; did you mean tuned\?"),
        ({"features": "magic"}, "no features 'magic'"),
        ({"methods": ("ays-sd15",)}, "not made for models like 'mixture'"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_before_anything_runs(tmp_path, wrong, said):
    with pytest.raises(GeoSprintError, match=said):
        compare(ring(), tmp_path / "new", replace(SMALL, **wrong))
    assert not (tmp_path / "new").exists()


def test_the_best_has_the_smallest_error_and_limits_do_not_compete(done):
    _, comparison = done
    means = {cell.method: cell.errors.mean() for cell in comparison.column("ddim", 4)}
    best = min(means, key=means.get)
    assert comparison.winner("ddim", 4).method == best
    rest = min((m for m in means if m != best), key=means.get)
    limit = replace(comparison.cell("ddim", best, 4), method="ld3-l2")
    others = [cell for cell in comparison.column("ddim", 4) if cell.method != best]
    assert replace(comparison, cells=[limit, *others]).winner("ddim", 4).method == rest
    assert comparison.summary()["columns"][0]["best"] == best


def test_only_what_chance_can_explain_ties_with_the_best(done):
    _, comparison = done
    best = comparison.winner("ddim", 4)
    random = np.random.default_rng(0)
    near = replace(best, method="near", errors=best.errors + 0.01 * random.standard_normal(24))
    far = replace(best, method="far", errors=best.errors + 0.02 + 0.01 * random.standard_normal(24))
    near = replace(near, errors=near.errors - near.errors.mean() + best.errors.mean() + 1e-4)
    wider = replace(comparison, cells=[*comparison.cells, near, far])
    assert wider.ties_with_best(near)
    assert not wider.ties_with_best(far)
    assert not wider.ties_with_best(best)


def test_pictures_have_a_signal_to_noise_ratio(tmp_path):
    plan = replace(SMALL, methods=("quadratic",), steps=(4,))
    comparison = compare(digits(), tmp_path, plan)
    cell = comparison.cells[0]
    expected = (20 * np.log10(2 / cell.errors)).mean()
    assert comparison.value(cell, "psnr").value == pytest.approx(expected)


def test_statistics_of_the_data_add_a_distance_to_it(tmp_path):
    plan = Plan((2,), methods=("quadratic",), samples=10, fine_steps=2)
    comparison = compare(load_model("fashion"), tmp_path, plan)
    assert plan.features is None
    assert comparison.plan.features == "classifier"
    assert comparison.value(comparison.cells[0], "frechet-data").value > 0


def test_a_flow_is_compared_without_the_spacing_it_has_not(tmp_path):
    minutes = ("ld3-l2", "bns-l2", "oss", "dm-nonuniform", "s4s-alt", "dyweight", "neural-solver")
    plan = replace(SMALL, methods=None, leave_out=minutes, steps=(4,), solvers=("euler",))
    comparison = compare(ring(noise=Flow()), tmp_path, plan)
    methods = {cell.method for cell in comparison.cells}
    assert "uniform-leading" not in methods
    assert {"uniform-trailing", "karras", "gits", "sdm", "sharp-euler", "geosprint"} <= methods
    assert all(np.isfinite(cell.errors).all() for cell in comparison.cells)


def test_all_files_of_a_comparison_can_be_read(done, tmp_path, capsys):
    _, comparison = done
    files = leave_files(comparison, tmp_path, "geosprint compare mixture")
    names = ["best/ddim-4.json", "best/ddim-6.json", "profile.json", "results.csv", "results.md", "summary.json"]
    there = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert sorted(path.relative_to(tmp_path).as_posix() for path in files) == there == names
    held = json.loads((tmp_path / "summary.json").read_text())
    assert held["command"] == "geosprint compare mixture"
    assert [column["steps"] for column in held["columns"]] == [4, 6]
    show_comparison(comparison, files)
    shown = capsys.readouterr().out
    assert "results.csv" in shown
    assert "uniform-leading" in shown


def test_the_table_has_the_mean_error_of_each_method_and_bolds_the_best(done):
    _, comparison = done
    sheet = table_of(comparison, "ddim")
    assert sheet.header == ["method", "K=4", "F²", "K=6", "F²"]
    bold = [line[0] for line in sheet.lines if line[1].startswith("**")]
    assert bold == [comparison.winner("ddim", 4).method]
    line = next(line for line in sheet.lines if line[0] == "quadratic")
    assert line[3].strip("≈*") == f"{comparison.cell('ddim', 'quadratic', 6).errors.mean():.4f}"


def test_the_headline_of_each_number_of_steps_names_the_winner_or_says_that_there_is_none(done):
    _, comparison = done
    for steps, said in zip((4, 6), headlines(comparison, "ddim"), strict=True):
        best = comparison.winner("ddim", steps).method
        lost = f"No schedule has a lower error than {steps} uniform steps. {best}"
        assert said.startswith(lost if best.startswith("uniform") else f"{steps} steps of {best} ")
        assert "24 samples from held-out noise." in said


def test_the_page_of_a_gaussian_puts_exact_values_beside_the_estimates(tmp_path):
    model = Gaussian.of_images((1, 8, 8))
    comparison = compare(model, tmp_path, replace(SMALL, methods=("uniform-trailing", "quadratic"), samples=200))
    text = markdown(comparison, "geosprint compare gaussian")
    assert "intervals." in text
    inside = [
        comparison.value(cell, "rmse").low
        <= comparison.value(cell, "rmse-exact").value
        <= comparison.value(cell, "rmse").high
        for cell in comparison.cells
    ]
    assert sum(inside) >= 3
    assert f"The exact RMSE lies in {sum(inside)} of 4 intervals." in text


def test_a_memory_keeps_and_recalls(tmp_path, done):
    _, comparison = done
    memory = Memory(tmp_path)
    key = {"solver": "ddim", "method": "gits", "steps": 4}
    assert memory.recall_cell(key) is None
    cell = comparison.cell("ddim", "gits", 4)
    memory.keep(key, cell)
    held = memory.recall_cell(key)
    np.testing.assert_array_equal(held.errors, cell.errors)
    np.testing.assert_array_equal(held.timesteps, cell.timesteps)
    torch.testing.assert_close(held.features, cell.features)
    assert (held.nfe, held.build_nfe, held.build_seconds) == (cell.nfe, cell.build_nfe, cell.build_seconds)
    assert memory.recall_cell({**key, "steps": 5}) is None


def test_a_comparison_holds_its_recording(done):
    _, comparison = done
    assert isinstance(comparison, Comparison)
    assert comparison.recording.profile.seeds == tuple(range(8))
