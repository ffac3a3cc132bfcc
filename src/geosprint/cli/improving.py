"""Verbs that make sampling faster: tune, fit, save."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geosprint.cli.options import (
    PIPELINE_HELP,
    AnyModelName,
    Batch,
    Json,
    ModelOptions,
    Seed,
    TrustRemoteCode,
    Work,
    takes_model_options,
)
from geosprint.cli.running import listed_numbers, long_run, require_another, require_suffix, require_writable, tell
from geosprint.runs import BATCH

if TYPE_CHECKING:
    from geosprint import Tuned

OTHER = "Other wishes"

TunedOut = Annotated[Path, typer.Option("-o", "--out", help="Where the result goes; a report goes beside it.")]
TodayOption = Annotated[
    str | None,
    typer.Option(
        "--today",
        help="What you run now, as solver:steps or solver:steps:spacing (ddim:50, dpmpp-2m:25:karras). Left out: the "
        "pipeline's own scheduler and steps, or 50 uniform steps.",
    ),
]
BudgetNfe = Annotated[int, typer.Option(help="Network calls that the whole command may make.")]


@takes_model_options
def tune(
    model: AnyModelName,
    options: ModelOptions,
    steps: Annotated[
        str | None, typer.Option(help="These numbers of steps, as in 6,8,12, instead of the fewest that match today.")
    ] = None,
    today: TodayOption = None,
    solver: Annotated[
        str,
        typer.Option(
            help="fitted: where and how to step. Or keep ddim, euler, heun, dpmpp-2m, unipc, deis or ipndm, and tune "
            "where to step alone, for engines that take sigmas and nothing else; dpmpp-2m-kdiffusion is what ComfyUI "
            "and stable-diffusion.cpp call dpmpp_2m on flows."
        ),
    ] = "fitted",
    budget_nfe: BudgetNfe = 20_000,
    out: TunedOut = Path("tuned.json"),
    target_error: Annotated[
        float | None, typer.Option(help="Reach this error instead of today's.", rich_help_panel=OTHER)
    ] = None,
    measure: Annotated[
        str,
        typer.Option(
            help="What an error is: rmse, or a distance in features: classifier, package.module:factory.",
            rich_help_panel=OTHER,
        ),
    ] = "rmse",
    against: Annotated[
        Path | None,
        typer.Option(
            help="A schedule.json of yours for the kept solver that must be beaten too.", rich_help_panel=OTHER
        ),
    ] = None,
    batch: Batch = BATCH,
    work: Work = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the fewest steps that are as good as what you run today, and prove it on held-out noise."""
    from geosprint import StepSchedule
    from geosprint.tuning.run import tune as tune_model

    require_suffix(out, ".json")
    require_writable(out, out.with_suffix(".html"), directory=work)
    wanted = listed_numbers(steps, "--steps") if steps is not None else None
    yours = StepSchedule.load(against) if against else None
    with long_run(_how_to_go_on(work)):
        tuned = tune_model(
            options.load(model),
            wanted,
            today=today,
            solver=solver,
            target_error=target_error,
            budget_nfe=budget_nfe,
            measure=measure,
            against=yours,
            seed=seed,
            batch=batch,
            work=work,
        )
    _leave(tuned, model, out, as_json)


@takes_model_options
def fit(
    model: AnyModelName,
    options: ModelOptions,
    steps: Annotated[int, typer.Option(help="Steps of the solver, K.")],
    schedule: Annotated[
        Path | None, typer.Option(help="A schedule.json of K steps; left out: the closed form that suits best.")
    ] = None,
    order: Annotated[int, typer.Option(help="Predictions that a step looks at, 1 to 4.")] = 4,
    today: TodayOption = None,
    budget_nfe: BudgetNfe = 20_000,
    out: TunedOut = Path("fitted.json"),
    batch: Batch = BATCH,
    work: Work = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit how to step on a schedule that stays as it is, and prove it on held-out noise."""
    from geosprint import StepSchedule
    from geosprint.tuning.run import fit as fit_solver

    require_suffix(out, ".json")
    require_writable(out, out.with_suffix(".html"), directory=work)
    if schedule:
        require_another(out, schedule)
    place = StepSchedule.load(schedule) if schedule else None
    with long_run(_how_to_go_on(work)):
        tuned = fit_solver(
            options.load(model),
            steps,
            place,
            today=today,
            order=order,
            budget_nfe=budget_nfe,
            seed=seed,
            batch=batch,
            work=work,
        )
    _leave(tuned, model, out, as_json)


def save(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help=f"{PIPELINE_HELP.capitalize()}.")],
    schedule: Annotated[Path, typer.Option(help="A file made by tune, fit, schedule or extract.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The directory that the pipeline goes to.")],
    standalone: Annotated[
        bool,
        typer.Option("--standalone", help="With the scheduler's code, to be loaded without geosprint as trusted code."),
    ] = False,
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16, of the saved weights.")] = "float32",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Save a pipeline that steps as a file says."""
    from geosprint.integrations.apply import apply
    from geosprint.integrations.pipelines import load_pipeline

    require_writable(directory=out)
    pipe = load_pipeline(pipeline, dtype, "cpu", trust_remote_code=trust_remote_code)
    apply(pipe, schedule, standalone=standalone).save_pretrained(out)
    print(out)


def _leave(tuned: Tuned, model: str, out: Path, as_json: bool) -> None:
    """Write the file and the report, and say what was found and how it is used."""
    from geosprint.report.page import write_report_of
    from geosprint.report.tuned import headline_of, show_tuned

    files = [tuned.save(out), write_report_of([out], out.with_suffix(".html"))]

    def show() -> None:
        show_tuned(tuned, files)
        print(_how_to_use(tuned, model, out))

    tell(as_json, {**tuned.to_dict(), "headline": " ".join(headline_of(tuned)), "file": str(out)}, show)


def _how_to_use(tuned: Tuned, model: str, out: Path) -> str:
    """The next command, or the lines of Python for a pipeline."""
    from geosprint.models.registry import names_pipeline

    steps = tuned.proved or max(tuned.steps)
    if names_pipeline(model):
        applied = f"geosprint.apply(pipe, {json.dumps(str(out))})"
        return f"{applied}\nimage = pipe(prompt, num_inference_steps={steps}).images[0]"
    which = f" --steps {steps}" if len(tuned.steps) > 1 and tuned.proved is None else ""
    return f"geosprint sample {shlex.quote(model)} --schedule {shlex.quote(str(out))}{which} -n 16 -o samples.png"


def _how_to_go_on(work: Path | None) -> str:
    if work:
        return f"the model's answers are in {work}, and the same command goes on"
    return "nothing was kept; with --work DIR, a stopped run can go on"
