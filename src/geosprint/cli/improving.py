"""Verbs that make sampling faster: tune, fit, save."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from geosprint.cli.options import (
    PIPELINE_HELP,
    AnyModelName,
    Batch,
    Json,
    ModelOptions,
    Seed,
    TrustRemoteCode,
    Work,
    argument,
    of_wish,
    option,
    output,
    takes_groups,
)
from geosprint.cli.running import (
    how_to_go_on,
    listed_numbers,
    long_run,
    require_another,
    require_suffix,
    require_writable,
    tell,
)
from geosprint.runs import BATCH

if TYPE_CHECKING:
    from geosprint import Tuned

TunedOut = Annotated[Path, output("Where the result goes; a report goes beside it.")]


@dataclass(frozen=True)
class TuningOptions:
    """What `tune` and `fit` may both be told, under the names of their parameters in Python."""

    today: Annotated[
        str | None,
        option(
            "What you run now, as solver:steps or solver:steps:spacing (ddim:50, dpmpp-2m:25:karras). Left out: the "
            "pipeline's own scheduler and steps, or 50 uniform steps."
        ),
    ] = None
    budget_nfe: Annotated[int, option("Network calls that the whole command may make.")] = 20_000
    batch: Batch = BATCH
    work: Work = None
    seed: Seed = 0


@takes_groups
def tune(
    model: AnyModelName,
    *,
    steps: Annotated[
        str | None, option("These numbers of steps, as in 6,8,12, instead of the fewest that match today.")
    ] = None,
    tuning: TuningOptions,
    solver: Annotated[
        str,
        option(
            "fitted: where and how to step. Or keep ddim, euler, heun, dpmpp-2m, unipc, deis or ipndm, and tune "
            "where to step alone, for engines that take sigmas and nothing else; dpmpp-2m-kdiffusion is what ComfyUI "
            "and stable-diffusion.cpp call dpmpp_2m on flows."
        ),
    ] = "fitted",
    out: TunedOut = Path("tuned.json"),
    target_error: Annotated[float | None, of_wish("Reach this error instead of today's.")] = None,
    measure: Annotated[
        str, of_wish("What an error is: rmse, or a distance in features: classifier, package.module:factory.")
    ] = "rmse",
    against: Annotated[
        Path | None, of_wish("A schedule.json of yours for the kept solver that must be beaten too.")
    ] = None,
    as_json: Json = False,
    options: ModelOptions,
) -> None:
    """Find the fewest steps that are as good as what you run today, and prove it on held-out noise."""
    from geosprint import StepSchedule
    from geosprint.tuning.run import tune as tune_model

    _require_outputs(out, tuning.work)
    wanted = listed_numbers(steps, "--steps") if steps is not None else None
    yours = StepSchedule.load(against) if against else None
    asked: dict[str, Any] = {"solver": solver, "target_error": target_error, "measure": measure, "against": yours}
    with long_run(how_to_go_on("the model's answers are", tuning.work)):
        tuned = tune_model(options.load(model), wanted, **asked, **vars(tuning))
    _leave(tuned, model, out, as_json)


@takes_groups
def fit(
    model: AnyModelName,
    *,
    steps: Annotated[int, option("Steps of the solver, K.")],
    schedule: Annotated[
        Path | None, option("A schedule.json of K steps; left out: the closed form that suits best.")
    ] = None,
    order: Annotated[int, option("Predictions that a step looks at, 1 to 4.")] = 4,
    tuning: TuningOptions,
    out: TunedOut = Path("fitted.json"),
    as_json: Json = False,
    options: ModelOptions,
) -> None:
    """Fit how to step on a schedule that stays as it is, and prove it on held-out noise."""
    from geosprint import StepSchedule
    from geosprint.tuning.run import fit as fit_solver

    _require_outputs(out, tuning.work)
    require_another(out, schedule)
    place = StepSchedule.load(schedule) if schedule else None
    with long_run(how_to_go_on("the model's answers are", tuning.work)):
        tuned = fit_solver(options.load(model), steps, place, order=order, **vars(tuning))
    _leave(tuned, model, out, as_json)


def save(
    pipeline: Annotated[str, argument("PIPELINE", f"{PIPELINE_HELP.capitalize()}.")],
    schedule: Annotated[Path, option("A file made by tune, fit, schedule or extract.")],
    out: Annotated[Path, output("The directory that the pipeline goes to.")],
    standalone: Annotated[
        bool, option("With the scheduler's code, to be loaded without geosprint as trusted code.", "--standalone")
    ] = False,
    dtype: Annotated[str, option("float32, float16 or bfloat16, of the saved weights.")] = "float32",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Save a pipeline that steps as a file says."""
    from geosprint.integrations.apply import apply
    from geosprint.integrations.pipelines import load_pipeline

    require_writable(directory=out)
    pipe = load_pipeline(pipeline, dtype, "cpu", trust_remote_code=trust_remote_code)
    apply(pipe, schedule, standalone=standalone).save_pretrained(out)
    print(out)


def _require_outputs(out: Path, work: Path | None) -> None:
    require_suffix(out, ".json")
    require_writable(out, out.with_suffix(".html"), directory=work)


def _leave(tuned: Tuned, model: str, out: Path, as_json: bool) -> None:
    """Write the file and the report, and say what was found and how it is used."""
    from geosprint.report.page import write_report
    from geosprint.report.tuned import headline_of, show_tuned

    files = [tuned.save(out), write_report(out.parent, out.with_suffix(".html"), [out])]

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
