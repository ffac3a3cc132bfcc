"""Verbs that record a model and look at the profile: extract, merge, inspect."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosprint.cli.options import (
    LONG,
    MODEL_HELP,
    PIPELINE,
    PIPELINE_HELP,
    Eta,
    Json,
    ModelOptions,
    ProfileOut,
    ProfilePath,
    Seed,
    Work,
    takes_model_options,
)
from geosprint.cli.running import long_run, require_suffix, tell
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
    window: Annotated[int, typer.Option(help="Points that span the line or plane, k.")] = 2,
    levels: Annotated[int, typer.Option(help="Levels of the hierarchy: level l uses l + 1 points.")] = 1,
    target_score: Annotated[float, typer.Option(help="Prune as much as keeps alpha_traj below this.")] = 1e-3,
    search: Annotated[str, typer.Option(help="exact, or bisection as in Algorithm 1.")] = "exact",
    space: Annotated[str, typer.Option(help="vp, ve or x0.")] = "vp",
    normalisation: Annotated[str, typer.Option(help="time, pooled or none.")] = "time",
    batch: Annotated[
        int | None, typer.Option(help="Trajectories that go through the model together; 32, fewer of large ones.")
    ] = None,
    save_trajectories: Annotated[
        Path | None, typer.Option(help="Also keep the raw states and predictions, as safetensors.")
    ] = None,
    work: Work = None,
    shard: Annotated[
        str | None,
        typer.Option(help="i/n: only leave share i of 1..n in --work, for `geosprint merge`.", rich_help_panel=LONG),
    ] = None,
    until_stable: Annotated[
        float | None,
        typer.Option(help="Stop when the schedules of two halves agree so far, 0 to 1.", rich_help_panel=LONG),
    ] = None,
    keep_states: Annotated[
        bool,
        typer.Option("--keep-states", help="Leave raw states in --work, in half precision.", rich_help_panel=LONG),
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Of the hub repository.", rich_help_panel=PIPELINE)] = None,
    token: Annotated[str | None, typer.Option(envvar="HF_TOKEN", help="For the hub.", rich_help_panel=PIPELINE)] = None,
    cache_dir: Annotated[Path | None, typer.Option(help="Of the hub.", rich_help_panel=PIPELINE)] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Record reference trajectories of a model and find where they bend."""
    from geosprint.extraction import ReferencePass, extract_pass, extract_share
    from geosprint.profile import Settings
    from geosprint.report.terminal import show_profile, summary
    from geosprint.runs.team import joined_team

    settings = Settings(window, levels, target_score, search, space, normalisation)
    asked = ReferencePass(trajectories, reference_steps, solver, eta, seed, batch, settings, until_stable, keep_states)
    recorded_before = model.endswith(".safetensors")
    if (recorded_before or save_trajectories) and (work or shard or until_stable or keep_states):
        raise ModelError(
            "--work, --shard, --until-stable and --keep-states are for recording a model shard by shard; they go "
            "neither with recorded trajectories nor with --save-trajectories, which holds them all in memory"
        )
    if shard is not None and work is None:
        raise FileError("--shard leaves shards in a work directory, and got none: name one with --work")
    if recorded_before or save_trajectories:
        profile = _profile_in_memory(model, save_trajectories, asked, options)
    else:
        inputs = options.inputs()
        how = "nothing was kept; with --work DIR, a stopped run can go on"
        if work:
            how = f"finished shards are in {work}, and the same command goes on"
        with long_run(how), joined_team() as team:
            loaded = _model_or_pipeline(model, options, revision, token, cache_dir)
            if shard is not None and work is not None:
                made = extract_share(loaded, asked, work, _share(shard), inputs, progress=True, team=team)
                content = {"work": str(work), "shards": made}
                if team.leads:
                    tell(as_json, content, lambda: print(f"share {shard}: {made} shard{'s' * (made != 1)} → {work}"))
                return
            profile = extract_pass(loaded, asked, work, inputs, progress=True, team=team)
        if not team.leads:
            return
    profile.save(out)
    tell(as_json, {"profile": str(out), **summary(profile)}, lambda: show_profile(profile, out))


def merge(
    work: Annotated[Path, typer.Argument(metavar="DIR", help="The work directory of `geosprint extract`.")],
    out: ProfileOut = Path("profile.json"),
    as_json: Json = False,
) -> None:
    """Make the profile of a work directory whose shards independent jobs have left."""
    from geosprint.extraction import merge as merge_shards
    from geosprint.report.terminal import show_profile, summary

    profile = merge_shards(work, progress=True)
    profile.save(out)
    tell(as_json, {"profile": str(out), **summary(profile)}, lambda: show_profile(profile, out))


def inspect(
    profile: ProfilePath,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also plot the profile into this PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a profile holds."""
    from geosprint.profile import CurvatureProfile
    from geosprint.report.terminal import show_profile, summary

    if out:
        require_suffix(out, ".png")
    loaded = CurvatureProfile.load(profile)
    if out:
        from geosprint.report.plots import plot_profile

        plot_profile(loaded, out)
    tell(as_json, summary(loaded), lambda: show_profile(loaded, profile))


def _model_or_pipeline(
    name: str, options: ModelOptions, revision: str | None, token: str | None, cache_dir: Path | None
) -> Any:
    """What is to be recorded; a pipeline as it is, because its own loop is what is watched."""
    from geosprint import load_model, load_pipeline
    from geosprint.integrations.adapter import names_pipeline

    if names_pipeline(name):
        place = (options.dtype, options.device, revision, token, cache_dir, options.trust_remote_code)
        return load_pipeline(name, *place)
    return load_model(name, options.label, options.guidance)


def _profile_in_memory(
    model: str, save_to: Path | None, asked: ReferencePass, options: ModelOptions
) -> CurvatureProfile:
    """The profile of trajectories that were recorded before, or that are recorded now and kept whole."""
    from geosprint import Trajectories, load_model, profile_trajectories, record
    from geosprint.integrations.adapter import names_pipeline
    from geosprint.sampling import BATCH

    if save_to is None or model.endswith(".safetensors"):
        return profile_trajectories(Trajectories.load(Path(model)), asked.settings, progress=True)
    if names_pipeline(model):
        raise ModelError(
            "--save-trajectories is for models; a pipeline's states are too large to keep in memory, "
            "leave them on disk with --work DIR --keep-states"
        )
    require_suffix(save_to, ".safetensors")
    walk = (asked.seeds, asked.steps, asked.solver, asked.eta, BATCH if asked.batch is None else asked.batch)
    recorded = record(load_model(model, options.label, options.guidance), *walk, predictions=True, progress=True)
    recorded.save(save_to)
    return profile_trajectories(recorded, asked.settings, progress=True)


def _share(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        raise ScheduleError(f"--shard takes i/n with i in 1..n, such as 1/4, got {text!r}")
    return int(number), int(count)
