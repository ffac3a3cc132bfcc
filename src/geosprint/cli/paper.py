"""The verbs of the paper: extract, merge, schedule, budget, reproduce, claims."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import geosprint
from geosprint.cli import options
from geosprint.cli.options import argument, of_run, option, output, takes_groups, writable
from geosprint.cli.running import how_to_go_on, long_run, prompts_in, require_writable, tell, this_command
from geosprint.errors import FileError, ModelError, ScheduleError

if TYPE_CHECKING:
    from geosprint.extraction import ReferencePass

ProfilePath = Annotated[Path, argument("PROFILE", "A profile.json made by `geosprint extract`.")]
ScheduleOut = Annotated[Path, output("Where the schedule goes.")]
Blend = Annotated[float, option("0: uniform in log-SNR, 1: curvature alone.")]


@takes_groups
def extract(
    model: Annotated[
        str,
        argument(
            "MODEL",
            f"{options.MODEL_HELP}; {options.PIPELINE_HELP}; or trajectories.safetensors recorded before, to profile "
            "them anew.",
        ),
    ],
    *,
    out: Annotated[Path, option("Where the profile goes.", "-o", "--out")] = Path("profile.json"),
    trajectories: Annotated[int, option("Reference trajectories, B.")] = 100,
    reference_steps: Annotated[int, option("Steps of each, N.")] = 200,
    solver: Annotated[
        str, option("ddim, ddpm, euler, heun, dpmpp-2m, unipc; for a pipeline ddim, or pipeline: its own.")
    ] = "ddim",
    eta: options.Eta = 0.0,
    target_score: Annotated[float, option("Prune as much as keeps alpha_traj below this.")] = 1e-3,
    batch: Annotated[int | None, of_run("Trajectories that go through it together; 6, fewer of large ones.")] = None,
    save_trajectories: Annotated[
        Path | None, of_run("Also keep states and predictions, as safetensors.", callback=writable(".safetensors"))
    ] = None,
    work: options.Work = None,
    shard: Annotated[str | None, of_run("i/n: only leave share i of 1..n in --work, for `geosprint merge`.")] = None,
    until_stable: Annotated[float | None, of_run("Stop when the schedules of two halves agree so far, 0 to 1.")] = None,
    keep_states: Annotated[bool, of_run("Leave raw states in --work, in half precision.", "--keep-states")] = False,
    revision: Annotated[str | None, of_run("Of the hub repository.")] = None,
    token: Annotated[str | None, of_run("For the hub.", envvar="HF_TOKEN")] = None,
    cache_dir: Annotated[Path | None, of_run("Of the hub.")] = None,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    loading: options.ModelOptions,
) -> None:
    """Record reference trajectories of a model and find where they bend."""
    from geosprint.extraction import ReferencePass, extract_share
    from geosprint.integrations.adapter import with_bundled_prompts
    from geosprint.models.registry import names_pipeline
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
    if shard is None:
        require_writable(out)
    if in_memory:
        _save_profile(_profile_in_memory(model, save_trajectories, asked, loading), out, as_json)
        return
    with long_run(how_to_go_on("finished shards are", work)):
        inputs = with_bundled_prompts(model, loading.inputs())
        # A pipeline is recorded as it is, because its own loop is what is watched.
        how = (loading.dtype, loading.device, revision, token, cache_dir, loading.trust_remote_code)
        loaded = geosprint.load_pipeline(model, *how) if names_pipeline(model) else loading.load(model)
        if shard is not None and work is not None:
            made = extract_share(loaded, asked, work, _share(shard), inputs, progress=True)
        else:
            recorded = (trajectories, reference_steps, solver, settings, seed, eta, batch)
            profile = geosprint.extract(loaded, *recorded, True, inputs, work, until_stable, keep_states)
    if shard is None:
        _save_profile(profile, out, as_json)
    else:
        told = f"share {shard}: {made} shard{'s' * (made != 1)} → {work}"
        tell(as_json, {"work": str(work), "shards": made}, lambda: print(told))


def merge(
    work: Annotated[Path, argument("DIR", "The work directory of `geosprint extract`.")],
    out: Annotated[Path, output("Where the profile goes.")] = Path("profile.json"),
    as_json: options.Json = False,
) -> None:
    """Make the profile of a work directory whose shards independent jobs have left."""
    from geosprint.extraction import merge as merge_shards

    _save_profile(merge_shards(work), out, as_json)


def _save_profile(profile: geosprint.CurvatureProfile, out: Path, as_json: bool) -> None:
    from geosprint.report.terminal import show_profile, summary

    profile.save(out)
    tell(as_json, {"profile": str(out), **summary(profile)}, lambda: show_profile(profile, out))


def _profile_in_memory(
    model: str, save_to: Path | None, asked: ReferencePass, loading: options.ModelOptions
) -> geosprint.CurvatureProfile:
    """The profile of trajectories that were recorded before, or that are recorded now and kept whole."""
    from geosprint.extraction import profile_trajectories
    from geosprint.models.registry import names_pipeline
    from geosprint.runs import BATCH

    if save_to is None or model.endswith(".safetensors"):
        if loading.inputs():
            raise ModelError(f"{model} was recorded before: leave prompts, guidance scale and sizes out")
        return profile_trajectories(geosprint.Trajectories.load(Path(model)), asked.settings)
    if names_pipeline(model):
        raise ModelError(
            "--save-trajectories is for models; a pipeline's states are too large to keep in memory, "
            "leave them on disk with --work DIR --keep-states"
        )
    walk = (asked.seeds, asked.steps, asked.solver, asked.eta, BATCH if asked.batch is None else asked.batch)
    recorded = geosprint.record(loading.load(model), *walk, predictions=True, progress=True, inputs=loading.inputs())
    recorded.save(save_to)
    return profile_trajectories(recorded, asked.settings)


def _share(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        raise ScheduleError(f"--shard takes i/n with i in 1..n, such as 1/4, got {text!r}")
    return int(number), int(count)


def schedule(
    profile: ProfilePath,
    steps: Annotated[int, option("Network calls the schedule may make, K.")],
    out: ScheduleOut = Path("schedule.json"),
    blend: Blend = 0.6,
    as_json: options.Json = False,
) -> None:
    """Build a schedule of exactly K steps from a profile."""
    from geosprint.report.terminal import listed_steps, show_schedule

    require_writable(out, reads=profile)
    made = geosprint.build_schedule(geosprint.CurvatureProfile.load(profile), steps, blend)
    made.save(out)
    tell(as_json, {"schedule": str(out), **listed_steps(made)}, lambda: show_schedule(made, out))


def budget(
    profile: ProfilePath,
    target_score: Annotated[float, option("The score alpha_traj that the schedule must reach.")],
    out: ScheduleOut = Path("schedule.json"),
    plot: Annotated[Path | None, option("Also plot score against K into this PNG.", callback=writable(".png"))] = None,
    blend: Blend = 0.6,
    as_json: options.Json = False,
) -> None:
    """Find the fewest steps whose schedule meets a target score."""
    from geosprint.report.terminal import listed_steps, show_budget

    require_writable(out, reads=profile)
    found = geosprint.find_budget(geosprint.CurvatureProfile.load(profile), target_score, blend)
    found.schedule.save(out)
    if plot:
        from geosprint.report.plots import plot_budget

        plot_budget(found, plot)
    content = {"schedule": str(out), "score": found.score, "settled": found.settled, "curve": found.curve}
    tell(as_json, {**content, **listed_steps(found.schedule)}, lambda: show_budget(found, out))


def reproduce(
    name: Annotated[str, argument("NAME", "An experiment of the paper, or all; see --list.")] = "all",
    model: Annotated[str | None, option(f"{options.MODEL_HELP}, or a pipeline; if left out, the preset's own.")] = None,
    quick: Annotated[bool, option("All of them in twenty minutes of two cores.", "--quick")] = False,
    preset: Annotated[
        str | None, option("shipped; scenes; or the paper's own models and sizes: cifar10, church or sd15.")
    ] = None,
    out: options.ResultsOut = Path("out/reproduce"),
    prompts: Annotated[Path | None, option("For a pipeline: a text file, a prompt per line.")] = None,
    device: Annotated[str, option("cpu, cuda or mps; auto: the fastest one.")] = "auto",
    seed: options.Seed = 0,
    list_them: Annotated[bool, option("Only list the experiments.", "--list")] = False,
    as_json: options.Json = False,
) -> None:
    """Run the paper's experiments and say what holds."""
    from geosprint.paper.base import QUICK
    from geosprint.paper.base import preset as preset_for
    from geosprint.paper.registry import EXPERIMENTS, named_experiments
    from geosprint.paper.registry import reproduce as run_experiments
    from geosprint.report.tables import Table

    if list_them:
        rows = [(one.name, one.paper) for one in EXPERIMENTS.values()]
        tell(as_json, dict(rows), lambda: Table.of(("experiment", "in the paper"), rows).show())
        return
    named_experiments(name)
    setting = QUICK if quick else preset_for(preset, model)
    setting = replace(setting, model=model or setting.model, prompts=prompts_in(prompts) or setting.prompts)
    setting = replace(setting, seed=seed, device=device, progress=True)
    found = []
    how = f"finished experiments are in {out}; the same command starts again from the first, reproduce NAME runs one"
    with long_run(how) as team:
        for finding in run_experiments(name, setting, out, this_command(), quick=quick):
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
    results: Annotated[Path, argument("DIR", "Where `geosprint reproduce` left its findings.")],
    out: Annotated[Path, output("Where the page goes.")] = Path("claims.md"),
) -> None:
    """Judge every claim of the paper by what was found."""
    from geosprint.files import refusing_damage, write_text
    from geosprint.paper.claims import ledger
    from geosprint.paper.registry import CLAIMS, read_findings

    with refusing_damage(results):
        page = ledger(CLAIMS, read_findings(results))
    print(write_text(out, page))
