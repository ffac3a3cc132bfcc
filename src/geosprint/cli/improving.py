"""Verbs that make sampling faster: tune, fit, export, save, sample."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import geosprint
from geosprint.cli import options
from geosprint.cli.options import argument, of_wish, option, output, takes_groups
from geosprint.cli.running import how_to_go_on, listed_numbers, long_run, require_suffix, require_writable, tell
from geosprint.errors import ScheduleError
from geosprint.runs import BATCH

MADE = "A file made by tune, fit, schedule or budget."
TunedOut = Annotated[Path, output("Where the result goes; a report goes beside it.", ".json")]


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
    batch: options.Batch = BATCH
    work: options.Work = None
    seed: options.Seed = 0


@takes_groups
def tune(
    model: options.AnyModelName,
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
    as_json: options.Json = False,
    loading: options.ModelOptions,
) -> None:
    """Find the fewest steps that are as good as what you run today, and prove it on held-out noise."""
    require_writable(out.with_suffix(".html"))
    wanted = listed_numbers(steps, "--steps") if steps is not None else None
    yours = geosprint.StepSchedule.load(against) if against else None
    asked: dict[str, Any] = {"solver": solver, "target_error": target_error, "measure": measure, "against": yours}
    with long_run(how_to_go_on("the network's outputs are", tuning.work)):
        tuned = geosprint.tune(loading.load(model), wanted, **asked, **vars(tuning))
    _leave(tuned, model, out, as_json)


@takes_groups
def fit(
    model: options.AnyModelName,
    *,
    steps: Annotated[int, option("Steps of the solver, K.")],
    schedule: Annotated[
        Path | None, option("A schedule.json of K steps; left out: the closed form that suits best.")
    ] = None,
    order: Annotated[int, option("Predictions that a step looks at, 1 to 4.")] = 4,
    tuning: TuningOptions,
    out: TunedOut = Path("fitted.json"),
    as_json: options.Json = False,
    loading: options.ModelOptions,
) -> None:
    """Fit how to step on a schedule that stays as it is, and prove it on held-out noise."""
    require_writable(out, out.with_suffix(".html"), reads=schedule)
    given = geosprint.StepSchedule.load(schedule) if schedule else None
    with long_run(how_to_go_on("the network's outputs are", tuning.work)):
        tuned = geosprint.fit(loading.load(model), steps, given, order=order, **vars(tuning))
    _leave(tuned, model, out, as_json)


def save(
    pipeline: Annotated[str, argument("PIPELINE", f"{options.PIPELINE_HELP.capitalize()}.")],
    schedule: Annotated[Path, option("A file made by tune, fit, schedule or extract.")],
    out: Annotated[Path, output("The directory that the pipeline goes to.", is_directory=True)],
    standalone: Annotated[
        bool, option("With the scheduler's code, to be loaded without geosprint as trusted code.", "--standalone")
    ] = False,
    dtype: Annotated[str, option("float32, float16 or bfloat16, of the saved weights.")] = "float32",
    trust_remote_code: options.TrustRemoteCode = False,
) -> None:
    """Save a pipeline that steps as a file says."""
    pipe = geosprint.load_pipeline(pipeline, dtype, "cpu", trust_remote_code=trust_remote_code)
    geosprint.apply(pipe, schedule, standalone=standalone).save_pretrained(out)
    print(out)


@takes_groups
def sample(
    model: options.AnyModelName,
    *,
    schedule: Annotated[Path | None, option(MADE)] = None,
    steps: Annotated[
        int | None, option("Which number of steps of --schedule, if it has several; without it, of --spacing.")
    ] = None,
    spacing: Annotated[
        str,
        option(
            "uniform-leading, uniform-trailing, uniform-linspace, quadratic, logsnr, karras, beta or kl-optimal; "
            "ays-sd15, ays-sdxl or ays-svd for the models they were made for."
        ),
    ] = "uniform-trailing",
    number: Annotated[int, option("Samples to draw.", "-n", "--number")] = 16,
    solver: Annotated[
        str | None,
        option(
            "ddim, ddpm, euler, heun, dpmpp-2m, dpmpp-2m-kdiffusion, unipc, deis or ipndm; if left out, what "
            "--schedule was made for."
        ),
    ] = None,
    eta: options.Eta = 0.0,
    out: Annotated[
        Path,
        option(
            "A .png for a picture of all, a .safetensors for the numbers, a folder for a PNG of each.", "-o", "--out"
        ),
    ] = Path("samples.png"),
    batch: options.Batch = BATCH,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    loading: options.ModelOptions,
) -> None:
    """Draw samples, stepping as a file says, or with a uniform spacing."""
    if solver and solver.endswith(".json"):
        raise ScheduleError(f"a file that says how to step goes to --schedule: say --schedule {solver}")
    if schedule is None and steps is None:
        raise ScheduleError("give --schedule FILE or --steps K, for so many steps of --spacing")
    require_suffix(out, ".png", ".safetensors", "")
    require_writable(out, is_directory=not out.suffix)
    if number < 1:
        raise ScheduleError(f"-n must be at least 1, got {number}")
    import torch

    from geosprint.baselines import baseline_schedule
    from geosprint.integrations.adapter import decoder_of
    from geosprint.metrics.pictures import require_folder, save_pngs
    from geosprint.models.wrappers import require_repeatable
    from geosprint.sampling import Counted, sample_batches, save_samples, where_and_how
    from geosprint.tuned import as_tuned

    seeds = range(seed, seed + number)
    made = geosprint.Tuned.load(schedule) if schedule else None
    with long_run("nothing was kept; the same command starts again") as team:
        loaded = loading.load(model)
        require_repeatable(loaded, batch)
        if len(loaded.shape) != 3:  # a folder is for pictures
            require_suffix(out, ".png", ".safetensors")
        if not out.suffix:
            require_folder(out, number)
        decode = None if out.suffix == ".safetensors" else decoder_of(loaded, batch)
        made = made or as_tuned(baseline_schedule(spacing, loaded.noise, steps or 0))
        chosen, counted = made.result(steps), Counted(loaded)
        timesteps, how = where_and_how(counted, made, steps, solver)
        drawn = sample_batches(counted, timesteps, seeds, how, eta, batch, True)
        parts = [part for part in drawn if team.leads]  # who does not write needs no samples
        if parts:
            samples = torch.cat(parts) if decode is None else decode(torch.cat(parts))
    if decode is None:
        save_samples(samples, out)
    elif out.suffix:
        from geosprint.report.plots import picture_samples

        picture_samples(samples, out)
    else:
        save_pngs(samples, out)
    nfe, by = counted.nfe, solver or chosen.solver or "ddim"
    content = {"samples": str(out), "number": number, "nfe": nfe, "steps": chosen.steps, "solver": by}
    tell(as_json, content, lambda: print(f"{number} samples, {nfe / number:g} network calls each → {out}"))


def export(
    file: Annotated[Path, argument("FILE", MADE)],
    to: Annotated[str, option("diffusers, comfyui, a1111, sdcpp, kdiffusion, vllm, sglang or json.")],
    steps: Annotated[int | None, option("Which number of steps, if the file has several.")] = None,
    out: Annotated[Path | None, output("A file instead of the terminal.")] = None,
) -> None:
    """Put tuned steps or a schedule into the words of another tool."""
    from geosprint.files import write_text

    text = geosprint.export(geosprint.Tuned.load(file), to, steps)
    if out:
        write_text(out, text)
    print(f"{out}" if out else text, end="\n" if out else "")


def _leave(tuned: geosprint.Tuned, model: str, out: Path, as_json: bool) -> None:
    """Write the file and the report, and say what was found and how it is used."""
    from geosprint.report.page import write_report
    from geosprint.report.tuned import headline_of, show_tuned

    files = [tuned.save(out), write_report(out.parent, out.with_suffix(".html"), [out])]

    def show() -> None:
        show_tuned(tuned, files)
        print(_how_to_use(tuned, model, out))

    tell(as_json, {**tuned.to_dict(), "headline": " ".join(headline_of(tuned)), "file": str(out)}, show)


def _how_to_use(tuned: geosprint.Tuned, model: str, out: Path) -> str:
    """The next command, or the lines of Python for a pipeline."""
    from geosprint.models.registry import names_pipeline

    steps = tuned.proved or max(tuned.steps)
    if names_pipeline(model):
        applied = f"geosprint.apply(pipe, {json.dumps(str(out))})"
        return f"{applied}\nimage = pipe(prompt, num_inference_steps={steps}).images[0]"
    which = f" --steps {steps}" if len(tuned.steps) > 1 and tuned.proved is None else ""
    return f"geosprint sample {shlex.quote(model)} --schedule {shlex.quote(str(out))}{which} -n 16 -o samples.png"
