"""Verbs that measure schedules side by side: compare, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geosprint.cli.options import (
    MEASURING,
    AnyModelName,
    Batch,
    Json,
    ModelName,
    ModelOptions,
    ResultsOut,
    Seed,
    takes_model_options,
)
from geosprint.cli.running import listed, listed_numbers, long_run, require_writable, tell, this_command
from geosprint.runs import BATCH


@takes_model_options
def compare(
    model: AnyModelName,
    options: ModelOptions,
    steps: Annotated[str, typer.Option(help="Numbers of steps, separated by commas.")] = "5,10,20",
    solver: Annotated[
        str,
        typer.Option(
            help="Solvers, separated by commas: ddim, euler, heun, dpmpp-2m, dpmpp-2m-kdiffusion, unipc, deis, ipndm."
        ),
    ] = "ddim",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas; all that apply, if left out. fitted and tuned+fitted step in their own "
            "way, whatever the solver."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The directory of results; what is there is not measured again.")
    ] = Path("out/compare"),
    quick: Annotated[bool, typer.Option("--quick", help="A first look: fewer samples, no limits and fitted.")] = False,
    number: Annotated[int | None, typer.Option("-n", "--number", help="Fresh samples to judge by; 256.")] = None,
    trajectories: Annotated[
        int | None, typer.Option(help="Recorded for the methods that look at them; 100.", rich_help_panel=MEASURING)
    ] = None,
    reference_steps: Annotated[
        int | None, typer.Option(help="Steps of each recorded trajectory; 200.", rich_help_panel=MEASURING)
    ] = None,
    fine_steps: Annotated[
        int | None, typer.Option(help="Heun steps of the solve that is the truth; 100.", rich_help_panel=MEASURING)
    ] = None,
    ruler: Annotated[
        str | None,
        typer.Option(
            help="More numbers of steps, for uniform spacings alone: what a schedule is worth.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Of Fréchet distances: raw, classifier, detector, inception or package.module:factory.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    statistics: Annotated[
        Path | None,
        typer.Option(help="An npz with mu and sigma of the data set in these features.", rich_help_panel=MEASURING),
    ] = None,
    batch: Batch = BATCH,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure every schedule there is on a model, side by side, on fresh noise."""
    from geosprint.comparison.plan import QUICK
    from geosprint.comparison.run import compare as compare_methods
    from geosprint.metrics.features import read_statistics
    from geosprint.report.comparison import leave_files, show_comparison
    from geosprint.report.page import write_report

    require_writable(directory=out)
    wanted, longer = listed_numbers(steps, "--steps"), listed_numbers(ruler, "--ruler") if ruler else None
    known = read_statistics(statistics) if statistics else None
    with long_run(f"what was measured is in {out}, and the same command goes on"):
        done = compare_methods(
            options.load(model),
            out,
            QUICK if quick else None,
            steps=wanted,
            solvers=listed(solver),
            methods=listed(methods) if methods else None,
            samples=number,
            trajectories=trajectories,
            reference_steps=reference_steps,
            fine_steps=fine_steps,
            ruler=longer,
            features=features,
            seed=seed,
            batch=batch,
            statistics=known,
            progress=True,
        )
    files = leave_files(done, out, this_command())
    page = write_report(out, out / "report.html")

    def show() -> None:
        show_comparison(done, files)
        print(f"report → {page}")

    tell(as_json, {**done.summary(), "files": [str(file) for file in (*files, page)]}, show)


def demo(
    model: ModelName = "fashion",
    out: ResultsOut = Path("out/demo"),
    budget_nfe: Annotated[int, typer.Option(help="Network calls that the tuning may make.")] = 20_000,
    number: Annotated[int, typer.Option("-n", "--number", help="Pictures to draw in each way.")] = 16,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Do the whole job once on a model in the box: tune it, and draw the same noise before and after."""
    from geosprint.demo import run_demo
    from geosprint.integrations.adapter import load_model
    from geosprint.report.page import write_report
    from geosprint.report.tuned import headline_of, show_tuned

    require_writable(directory=out)
    with long_run("nothing was kept; the same command starts again"):
        done = run_demo(load_model(model), budget_nfe, number, seed)
    files = [*done.save(out), write_report(out, out / "report.html")]
    content = {**done.tuned.to_dict(), "headline": " ".join(headline_of(done.tuned)), "files": list(map(str, files))}
    tell(as_json, content, lambda: show_tuned(done.tuned, files))
