"""Verbs that show what there is, and measure schedules side by side: inspect, report, compare, demo, models, doctor."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import geosprint
from geosprint.cli import options
from geosprint.cli.options import argument, of_measuring, option, output, takes_groups
from geosprint.cli.running import how_to_go_on, listed, listed_numbers, long_run, tell, this_command
from geosprint.errors import FileError
from geosprint.runs import BATCH


def inspect(
    file: Annotated[Path, argument("FILE", "Made by tune, fit, extract, schedule or budget.")],
    out: Annotated[Path | None, output("Also plot a profile into this PNG.", ".png")] = None,
    as_json: options.Json = False,
) -> None:
    """Show what a file holds: tuned steps, a schedule, or a profile of the paper's method."""
    from geosprint.report.terminal import show_profile, summary
    from geosprint.tuned import load_made

    held = load_made(file)
    if isinstance(held, geosprint.Tuned):
        if out:
            raise FileError(f"-o plots a profile, and {file} holds none; leave it out")
        tell(as_json, held.to_dict(), lambda: _show_steps(held, file))
        return
    if out:
        from geosprint.report.plots import plot_profile

        plot_profile(held, out)
    tell(as_json, summary(held), lambda: show_profile(held, file))


def _show_steps(tuned: geosprint.Tuned, path: Path) -> None:
    from geosprint.report.tuned import show_tuned

    print(f"{path}: {tuned!r}")
    show_tuned(tuned, [])
    about = tuned.made_for
    drawn = ", ".join(f"{name} {said}" for name, said in about.get("conditions", {}).items() if said is not None)
    if about:
        print(f"  made for {about.get('model')}{f' drawing {drawn}' if drawn else ''}")
    if tuned.nfe:
        print(f"  found with {tuned.nfe:,} network calls")
    for one in tuned.results:
        print(f"  {one.steps} steps at t = " + ", ".join(f"{t:g}" for t in one.schedule.timesteps.round(4)))


def report(
    directory: Annotated[Path, argument("DIR", "What compare, demo, tune, extract, fit or reproduce has left.")],
    out: Annotated[Path | None, output("Where the page goes; DIR/report.html if left out.", ".html")] = None,
) -> None:
    """Make one HTML page of everything in a directory; it opens anywhere, without network."""
    from geosprint.report.page import write_report

    print(write_report(directory, out or directory / "report.html"))


@takes_groups
def compare(
    model: options.AnyModelName,
    *,
    steps: Annotated[str, option("Numbers of steps, separated by commas.")] = "5,10,20",
    solver: Annotated[
        str,
        option("Solvers, separated by commas: ddim, euler, heun, dpmpp-2m, dpmpp-2m-kdiffusion, unipc, deis, ipndm."),
    ] = "ddim",
    methods: Annotated[
        str | None,
        option(
            "Methods, separated by commas; all that apply, if left out. fitted and tuned+fitted step in their own "
            "way, whatever the solver."
        ),
    ] = None,
    out: Annotated[
        Path, output("The directory of results; what is there is not measured again.", is_directory=True)
    ] = Path("out/compare"),
    quick: Annotated[bool, option("A first look: fewer samples, no limits and fitted.", "--quick")] = False,
    number: Annotated[int | None, option("Fresh samples to judge by; 256.", "-n", "--number")] = None,
    trajectories: Annotated[int | None, of_measuring("Recorded for the methods that look at them; 100.")] = None,
    reference_steps: Annotated[int | None, of_measuring("Steps of each recorded trajectory; 200.")] = None,
    fine_steps: Annotated[int | None, of_measuring("Heun steps of the solve that is the truth; 100.")] = None,
    ruler: Annotated[
        str | None, of_measuring("More numbers of steps, for uniform spacings alone: what a schedule is worth.")
    ] = None,
    features: Annotated[
        str | None,
        of_measuring("Of Fréchet distances: raw, classifier, detector, inception or package.module:factory."),
    ] = None,
    statistics: Annotated[
        Path | None, of_measuring("An npz with mu and sigma of the data set in these features.")
    ] = None,
    batch: options.Batch = BATCH,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    loading: options.ModelOptions,
) -> None:
    """Measure every schedule there is on a model, side by side, on fresh noise."""
    from geosprint.comparison.plan import QUICK, Plan
    from geosprint.metrics.features import read_statistics
    from geosprint.report.comparison import leave_files, show_comparison
    from geosprint.report.page import write_report

    asked = {
        "steps": listed_numbers(steps, "--steps"), "solvers": listed(solver), "samples": number, "seed": seed,
        "methods": listed(methods) if methods else None, "ruler": listed_numbers(ruler, "--ruler") if ruler else None,
        "trajectories": trajectories, "reference_steps": reference_steps, "fine_steps": fine_steps,
        "features": features, "batch": batch,
    }  # fmt: skip
    plan = (QUICK if quick else Plan()).changed(asked)
    known = read_statistics(statistics) if statistics else None
    with long_run(how_to_go_on("what was measured is", out)):
        done = geosprint.compare(loading.load(model), out, plan, statistics=known, progress=True)
    files = leave_files(done, out, this_command())
    page = write_report(out, out / "report.html")

    def show() -> None:
        show_comparison(done, files)
        print(f"report → {page}")

    tell(as_json, {**done.summary(), "files": [str(file) for file in (*files, page)]}, show)


def demo(
    model: Annotated[str, argument("MODEL", f"{options.MODEL_HELP}.")] = "fashion",
    out: options.ResultsOut = Path("out/demo"),
    budget_nfe: Annotated[int, option("Network calls that the tuning may make.")] = 20_000,
    number: Annotated[int, option("Pictures to draw in each way.", "-n", "--number")] = 16,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Do the whole job once on a model in the box: tune it, and draw the same noise before and after."""
    from geosprint.demo import run_demo
    from geosprint.report.page import write_report
    from geosprint.report.tuned import headline_of, show_tuned

    with long_run("nothing was kept; the same command starts again"):
        done = run_demo(geosprint.load_model(model), budget_nfe, number, seed)
    files = [*done.save(out), write_report(out, out / "report.html")]
    content = {**done.tuned.to_dict(), "headline": " ".join(headline_of(done.tuned)), "files": list(map(str, files))}
    tell(as_json, content, lambda: show_tuned(done.tuned, files))


def models(as_json: options.Json = False) -> None:
    """List the models in the box."""
    from geosprint.models.registry import models_in_the_box
    from geosprint.report.tables import Table

    rows = list(models_in_the_box().items())
    content = [{"name": name, "description": text} for name, text in rows]
    tell(as_json, content, lambda: Table.of(("model", "what it is"), rows).show())


def doctor(as_json: options.Json = False) -> None:
    """Say what is installed, which devices and models there are, and what is missing for which feature."""
    from geosprint.doctor import examine
    from geosprint.report.terminal import show_findings

    found = examine()
    tell(as_json, [asdict(finding) for finding in found], lambda: show_findings(found))
    if any(finding.is_broken for finding in found):
        raise typer.Exit(1)
