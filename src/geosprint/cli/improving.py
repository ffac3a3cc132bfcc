"""Verbs that look at a solver's error: tune, fit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from geosprint.cli.options import (
    AnyModelName,
    Batch,
    Json,
    ModelOptions,
    ScheduleOut,
    Seed,
    Work,
    takes_model_options,
)
from geosprint.cli.running import listed_numbers, long_run, require_another, require_suffix, tell, this_command
from geosprint.errors import ScheduleError


@takes_model_options
def tune(
    model: AnyModelName,
    options: ModelOptions,
    steps: Annotated[str, typer.Option(help="Numbers of steps, separated by commas; they share the teacher.")],
    solver: Annotated[
        str, typer.Option(help="ddim, euler, heun, dpmpp-2m, unipc, deis or ipndm; fitted: how to step is fitted, too.")
    ] = "ddim",
    budget_nfe: Annotated[int, typer.Option(help="Network calls that one schedule may cost, all included.")] = 20_000,
    out: ScheduleOut = Path("schedule.json"),
    measure: Annotated[
        str,
        typer.Option(help="What shall be small: rmse, or a distance in features: classifier, package.module:factory."),
    ] = "rmse",
    against: Annotated[Path | None, typer.Option(help="A schedule.json of yours that must be beaten too.")] = None,
    batch: Batch = 32,
    work: Work = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the best schedule for a model, a solver and a number of steps."""
    from geosprint.report.machine import machine
    from geosprint.report.page import write_report_of
    from geosprint.report.terminal import listed_steps, show_fitted, show_tuned
    from geosprint.schedule import StepSchedule
    from geosprint.tuning.result import FITTED, TunedSchedule, TunedSolver, save_record
    from geosprint.tuning.run import tune as tune_model

    require_suffix(out, ".json")
    wanted = listed_numbers(steps, "--steps")
    yours = StepSchedule.load(against) if against else None
    if solver == FITTED and (yours is not None or measure != "rmse"):
        raise ScheduleError("--solver fitted takes neither --against nor --measure; leave them out")
    with long_run(_how_to_go_on(work)):
        tuned = tune_model(
            options.load(model),
            wanted,
            solver=solver,
            budget_nfe=budget_nfe,
            measure=measure,
            against=yours,
            seed=seed,
            batch=batch,
            progress=True,
            work=work,
        )
    files = tuned.save(out)
    for one, path in zip(tuned.results, files, strict=True):
        if isinstance(one, TunedSolver):
            content = {"solver": str(path), **one.made.validation, **listed_steps(one.schedule)}
            tell(as_json, content, partial(show_fitted, one.made, path))
    schedules = [one for one in tuned.results if isinstance(one, TunedSchedule)]
    if not schedules:
        return
    summaries = [{**one.summary(), "schedule": str(path)} for one, path in zip(schedules, files, strict=True)]
    files.append(save_record(schedules, out.with_stem(f"{out.stem}-tuning"), this_command(), machine()))
    files.append(write_report_of(files, out.with_suffix(".html")))
    tell(as_json, summaries, lambda: show_tuned(schedules, files))


@takes_model_options
def fit(
    model: AnyModelName,
    options: ModelOptions,
    steps: Annotated[int, typer.Option(help="Network calls the solver may make, K.")],
    schedule: Annotated[
        Path | None, typer.Option(help="A schedule.json of K steps; the closed form that suits best, if left out.")
    ] = None,
    order: Annotated[int, typer.Option(help="Predictions that a step looks at, 1 to 4.")] = 4,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the solver goes.")] = Path("solver.json"),
    trajectories: Annotated[int, typer.Option(help="Teacher trajectories to learn from.")] = 48,
    held_out: Annotated[int, typer.Option(help="Held-out ones that only validate.")] = 32,
    budget_nfe: Annotated[int, typer.Option(help="Network calls that the fit may cost, all included.")] = 20_000,
    work: Work = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit how to step: a solver of K steps for a model, never worse than DPM++ 2M and DDIM on its schedule."""
    from geosprint.fitting.fit import fit as fit_solver
    from geosprint.report.terminal import listed_steps, show_fitted
    from geosprint.schedule import StepSchedule

    require_suffix(out, ".json")
    if schedule:
        require_another(out, schedule)
    place = StepSchedule.load(schedule) if schedule else None
    with long_run(_how_to_go_on(work)):
        loaded = options.load(model)
        fitted = fit_solver(
            loaded, steps, place, order, seed, trajectories, held_out, budget_nfe, progress=True, work=work
        )
    fitted.save(out)
    nfe = fitted.schedule.provenance["calls"]
    content = {"solver": str(out), "nfe": nfe, **fitted.validation, **listed_steps(fitted.schedule)}
    tell(as_json, content, lambda: show_fitted(fitted, out))


def _how_to_go_on(work: Path | None) -> str:
    if work:
        return f"the model's answers are in {work}, and the same command goes on"
    return "nothing was kept; with --work DIR, a stopped run can go on"
