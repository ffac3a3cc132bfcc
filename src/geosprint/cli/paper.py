"""The verbs of the paper: extract, merge, schedule, budget, reproduce, claims."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosprint.cli.options import (
    MODEL_HELP,
    PIPELINE_HELP,
    RUNNING,
    Blend,
    Eta,
    Json,
    ModelOptions,
    ProfileOut,
    ProfilePath,
    ResultsOut,
    ScheduleOut,
    Seed,
    Work,
    takes_model_options,
)
from geosprint.cli.running import (
    long_run,
    prompts_in,
    require_another,
    require_suffix,
    require_writable,
    tell,
    this_command,
)
from geosprint.errors import FileError, ModelError, ScheduleError

if TYPE_CHECKING:
    from geosprint import CurvatureProfile
    from geosprint.extraction import ReferencePass


@takes_model_options
def extract(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{MODEL_HELP}; {PIPELINE_HELP}; or trajectories.safetensors recorded before, to profile them anew.",
        ),
    ],
    options: ModelOptions,
    out: ProfileOut = Path("profile.json"),
    trajectories: Annotated[int, typer.Option(help="Reference trajectories, B.")] = 100,
    reference_steps: Annotated[int, typer.Option(help="Steps of each, N.")] = 200,
    solver: Annotated[
        str, typer.Option(help="ddim, ddpm, euler, heun, dpmpp-2m, unipc; for a pipeline ddim, or pipeline: its own.")
    ] = "ddim",
    eta: Eta = 0.0,
    target_score: Annotated[float, typer.Option(help="Prune as much as keeps alpha_traj below this.")] = 1e-3,
    batch: Annotated[
        int | None,
        typer.Option(help="Trajectories that go through it together; 6, fewer of large ones.", rich_help_panel=RUNNING),
    ] = None,
    save_trajectories: Annotated[
        Path | None, typer.Option(help="Also keep states and predictions, as safetensors.", rich_help_panel=RUNNING)
    ] = None,
    work: Work = None,
    shard: Annotated[
        str | None,
        typer.Option(help="i/n: only leave share i of 1..n in --work, for `geosprint merge`.", rich_help_panel=RUNNING),
    ] = None,
    until_stable: Annotated[
        float | None,
        typer.Option(help="Stop when the schedules of two halves agree so far, 0 to 1.", rich_help_panel=RUNNING),
    ] = None,
    keep_states: Annotated[
        bool,
        typer.Option("--keep-states", help="Leave raw states in --work, in half precision.", rich_help_panel=RUNNING),
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Of the hub repository.", rich_help_panel=RUNNING)] = None,
    token: Annotated[str | None, typer.Option(envvar="HF_TOKEN", help="For the hub.", rich_help_panel=RUNNING)] = None,
    cache_dir: Annotated[Path | None, typer.Option(help="Of the hub.", rich_help_panel=RUNNING)] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Record reference trajectories of a model and find where they bend."""
    from geosprint.extraction import ReferencePass, extract_share
    from geosprint.extraction import extract as extract_profile
    from geosprint.integrations.adapter import with_bundled_prompts
    from geosprint.profile import Settings

    settings = Settings(target_score=target_score)
    asked = ReferencePass(trajectories, reference_steps, solver, eta, seed, batch, settings, until_stable, keep_states)
    in_memory = model.endswith(".safetensors") or save_trajectories
    if in_memory and (work or shard or until_stable or keep_states):
        raise ModelError(
            "--work, --shard, --until-stable and --keep-states are for recording a model shard by shard; they go "
            "neither with recorded trajectories nor with --save-trajectories, which holds them all in memory"
        )
    if shard is not None and work is None:
        raise FileError("--shard leaves shards in a work directory, and got none: name one with --work")
    require_writable(None if shard else out, save_trajectories, directory=work)
    if in_memory:
        _save_profile(_profile_in_memory(model, save_trajectories, asked, options), out, as_json)
        return
    how = "nothing was kept; with --work DIR, a stopped run can go on"
    if work:
        how = f"finished shards are in {work}, and the same command goes on"
    with long_run(how):
        said, loaded = options.inputs(), _model_or_pipeline(model, options, revision, token, cache_dir)
        inputs = with_bundled_prompts(model, said)
        if shard is not None and work is not None:
            made = extract_share(loaded, asked, work, _share(shard), inputs, progress=True)
        else:
            recorded = (trajectories, reference_steps, solver, settings, seed, eta, batch)
            profile = extract_profile(loaded, *recorded, True, inputs, work, until_stable, keep_states)
    if shard is None:
        _save_profile(profile, out, as_json)
    else:
        told = f"share {shard}: {made} shard{'s' * (made != 1)} → {work}"
        tell(as_json, {"work": str(work), "shards": made}, lambda: print(told))


def merge(
    work: Annotated[Path, typer.Argument(metavar="DIR", help="The work directory of `geosprint extract`.")],
    out: ProfileOut = Path("profile.json"),
    as_json: Json = False,
) -> None:
    """Make the profile of a work directory whose shards independent jobs have left."""
    from geosprint.extraction import merge as merge_shards

    require_writable(out)
    _save_profile(merge_shards(work), out, as_json)


def _save_profile(profile: CurvatureProfile, out: Path, as_json: bool) -> None:
    from geosprint.report.terminal import show_profile, summary

    profile.save(out)
    tell(as_json, {"profile": str(out), **summary(profile)}, lambda: show_profile(profile, out))


def _model_or_pipeline(
    name: str, options: ModelOptions, revision: str | None, token: str | None, cache_dir: Path | None
) -> Any:
    """What is to be recorded; a pipeline as it is, because its own loop is what is watched."""
    from geosprint.models.registry import names_pipeline

    if names_pipeline(name):
        from geosprint import load_pipeline

        place = (options.dtype, options.device, revision, token, cache_dir, options.trust_remote_code)
        return load_pipeline(name, *place)
    return options.load(name)


def _profile_in_memory(
    model: str, save_to: Path | None, asked: ReferencePass, options: ModelOptions
) -> CurvatureProfile:
    """The profile of trajectories that were recorded before, or that are recorded now and kept whole."""
    from geosprint import Trajectories, record
    from geosprint.extraction import profile_trajectories
    from geosprint.models.registry import names_pipeline
    from geosprint.runs import BATCH

    if save_to is None or model.endswith(".safetensors"):
        if options.inputs():
            raise ModelError(f"{model} was recorded before: leave prompts, guidance scale and sizes out")
        return profile_trajectories(Trajectories.load(Path(model)), asked.settings)
    if names_pipeline(model):
        raise ModelError(
            "--save-trajectories is for models; a pipeline's states are too large to keep in memory, "
            "leave them on disk with --work DIR --keep-states"
        )
    require_suffix(save_to, ".safetensors")
    walk = (asked.seeds, asked.steps, asked.solver, asked.eta, BATCH if asked.batch is None else asked.batch)
    recorded = record(options.load(model), *walk, predictions=True, progress=True, inputs=options.inputs())
    recorded.save(save_to)
    return profile_trajectories(recorded, asked.settings)


def _share(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        raise ScheduleError(f"--shard takes i/n with i in 1..n, such as 1/4, got {text!r}")
    return int(number), int(count)


def schedule(
    profile: ProfilePath,
    steps: Annotated[int, typer.Option(help="Network calls the schedule may make, K.")],
    out: ScheduleOut = Path("schedule.json"),
    blend: Blend = 0.6,
    as_json: Json = False,
) -> None:
    """Build a schedule of exactly K steps from a profile."""
    from geosprint.profile import CurvatureProfile
    from geosprint.report.terminal import listed_steps, show_schedule
    from geosprint.schedule import build_schedule

    require_another(out, profile)
    require_writable(out)
    made = build_schedule(CurvatureProfile.load(profile), steps, blend)
    made.save(out)
    tell(as_json, {"schedule": str(out), **listed_steps(made)}, lambda: show_schedule(made, out))


def budget(
    profile: ProfilePath,
    target_score: Annotated[float, typer.Option(help="The score alpha_traj that the schedule must reach.")],
    out: ScheduleOut = Path("schedule.json"),
    plot: Annotated[Path | None, typer.Option(help="Also plot score against K into this PNG.")] = None,
    blend: Blend = 0.6,
    as_json: Json = False,
) -> None:
    """Find the fewest steps whose schedule meets a target score."""
    from geosprint.extraction import find_budget
    from geosprint.profile import CurvatureProfile
    from geosprint.report.terminal import listed_steps, show_budget

    require_another(out, profile)
    require_writable(out)
    if plot:
        require_suffix(plot, ".png")
        require_writable(plot)
    found = find_budget(CurvatureProfile.load(profile), target_score, blend)
    found.schedule.save(out)
    if plot:
        from geosprint.report.plots import plot_budget

        plot_budget(found, plot)
    content = {"schedule": str(out), "score": found.score, "settled": found.settled, "curve": found.curve}
    tell(as_json, {**content, **listed_steps(found.schedule)}, lambda: show_budget(found, out))


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An experiment of the paper, or all; see --list.")
    ] = "all",
    model: Annotated[
        str | None, typer.Option(help=f"{MODEL_HELP}, or a pipeline; if left out, the preset's own.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="All of them in twenty minutes of two cores.")] = False,
    preset: Annotated[
        str | None, typer.Option(help="shipped; scenes; or the paper's own models and sizes: cifar10, church or sd15.")
    ] = None,
    out: ResultsOut = Path("out/reproduce"),
    prompts: Annotated[Path | None, typer.Option(help="For a pipeline: a text file, a prompt per line.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; auto: the fastest one.")] = "auto",
    seed: Seed = 0,
    list_them: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and say what holds."""
    from geosprint.paper.base import QUICK, preset_for, preset_named
    from geosprint.paper.registry import EXPERIMENTS, named_experiments
    from geosprint.paper.registry import reproduce as run_experiments
    from geosprint.report.terminal import show_table

    if list_them:
        rows = [(one.name, one.paper) for one in EXPERIMENTS.values()]
        tell(as_json, dict(rows), lambda: show_table(("experiment", "in the paper"), rows))
        return
    named_experiments(name)
    require_writable(directory=out)
    asked: dict[str, Any] = {"model": model, "prompts": prompts_in(prompts) or None}
    setting = replace(
        QUICK if quick else preset_for(model) if preset is None else preset_named(preset),
        seed=seed,
        device=device,
        progress=True,
        **{option: value for option, value in asked.items() if value is not None},
    )
    command = this_command()
    found = []
    how = f"finished experiments are in {out}; the same command starts again from the first, reproduce NAME runs one"
    with long_run(how) as team:
        for finding in run_experiments(name, setting, out, command, quick=quick):
            if not team.leads:
                continue
            if isinstance(finding, str):
                print(f"geosprint: {finding}", file=sys.stderr)
                continue
            where = out / finding.name
            found.append({"experiment": finding.name, "verdict": finding.verdict, "directory": str(where)})
            if not as_json:
                paper = EXPERIMENTS[finding.name].paper
                print(f"\n{finding.name} ({paper})\n  {finding.verdict}\n  → {where}", flush=True)
    if as_json:
        print(json.dumps(found))


def claims(
    results: Annotated[Path, typer.Argument(metavar="DIR", help="Where `geosprint reproduce` left its findings.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the page goes.")] = Path("claims.md"),
) -> None:
    """Judge every claim of the paper by what was found."""
    from geosprint.files import refusing_damage, write_text
    from geosprint.paper.claims import ledger
    from geosprint.paper.registry import CLAIMS, read_findings

    require_writable(out)
    with refusing_damage(results):
        page = ledger(CLAIMS, read_findings(results))
    print(write_text(out, page))
