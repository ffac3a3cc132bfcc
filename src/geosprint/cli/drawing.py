"""The verb that draws samples: sample."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from geosprint.cli.options import (
    AnyModelName,
    Batch,
    Eta,
    Json,
    ModelOptions,
    Seed,
    argument,
    option,
    output,
    takes_groups,
)
from geosprint.cli.running import long_run, require_suffix, require_writable, tell
from geosprint.errors import ScheduleError
from geosprint.runs import BATCH

MADE = "A file made by tune, fit, schedule or budget."


@takes_groups
def sample(
    model: AnyModelName,
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
    eta: Eta = 0.0,
    out: Annotated[
        Path, output("A .png for a picture of all, a .safetensors for the numbers, a folder for a PNG of each.")
    ] = Path("samples.png"),
    batch: Batch = BATCH,
    seed: Seed = 0,
    as_json: Json = False,
    options: ModelOptions,
) -> None:
    """Draw samples, stepping as a file says, or with a uniform spacing."""
    if solver and solver.endswith(".json"):
        raise ScheduleError(f"a file that says how to step goes to --schedule: say --schedule {solver}")
    if schedule is None and steps is None:
        raise ScheduleError("give --schedule FILE or --steps K, for so many steps of --spacing")
    require_suffix(out, ".png", ".safetensors", "")
    require_writable(*([out] if out.suffix else []), directory=None if out.suffix else out)
    if number < 1:
        raise ScheduleError(f"-n must be at least 1, got {number}")
    import torch

    from geosprint.baselines import baseline_schedule
    from geosprint.integrations.adapter import decoder_of
    from geosprint.metrics.pictures import require_folder, save_pngs
    from geosprint.models.wrappers import require_repeatable
    from geosprint.sampling import Counted, sample_batches, save_samples
    from geosprint.tuned import Tuned, as_tuned

    seeds = range(seed, seed + number)
    made = Tuned.load(schedule) if schedule else None
    with long_run("nothing was kept; the same command starts again") as team:
        loaded = options.load(model)
        require_repeatable(loaded, batch)
        if len(loaded.shape) != 3:  # a folder is for pictures
            require_suffix(out, ".png", ".safetensors")
        if not out.suffix:
            require_folder(out, number)
        decode = None if out.suffix == ".safetensors" else decoder_of(loaded, batch)
        made = made or as_tuned(baseline_schedule(spacing, loaded.noise, steps or 0))
        chosen, counted = made.result(steps), Counted(loaded)
        drawn = sample_batches(counted, made, seeds, solver, eta, batch, True, steps=steps)
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
    require_writable(out)
    from geosprint.files import write_text
    from geosprint.integrations.export import export as exported
    from geosprint.tuned import Tuned

    text = exported(Tuned.load(file), to, steps)
    if out:
        write_text(out, text)
    print(f"{out}" if out else text, end="\n" if out else "")
