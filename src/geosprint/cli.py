"""The command line: one verb per arrow from a model to samples."""

from __future__ import annotations

import io
import json
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosprint import __version__
from geosprint.errors import FileError, GeoSprintError, ModelError, ScheduleError, TeamError

if TYPE_CHECKING:
    from geosprint import CurvatureProfile, PipelineInputs
    from geosprint.reference import ReferencePass

# Everything that needs torch is imported inside a verb: --help must answer at once.

app = typer.Typer(
    help="Fewer network calls for the same samples: schedules from the geometry of denoising trajectories.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

MODEL_HELP = "A name from `geosprint models`, or package.module:factory (which runs that code)"
PIPELINE_HELP = "a diffusers pipeline, as a directory or a hub id"
ModelName = Annotated[str, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP}.")]
AnyModelName = Annotated[str, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP}; or {PIPELINE_HELP}.")]
ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile.json made by `geosprint extract`.")]
Seed = Annotated[int, typer.Option(help="First seed; sample i has seed + i.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Blend = Annotated[float, typer.Option(help="0: uniform in log-SNR, 1: curvature alone.")]
Literal = Annotated[
    bool, typer.Option("--literal", help="Count the forced first window as retained, as the paper does.")
]
SolverName = Annotated[str, typer.Option(help="ddim, ddpm, euler, heun, dpmpp-2m, unipc, deis or ipndm.")]
Eta = Annotated[float, typer.Option(help="Share of fresh noise in ddim, 0 to 1.")]
Label = Annotated[int | None, typer.Option(help="The class that a shipped network draws; any, if left out.")]
Guidance = Annotated[
    float | None, typer.Option(help="How much to exaggerate the label; other than 1, two calls a step.")
]
LONG = "Long runs"
Work = Annotated[
    Path | None,
    typer.Option(help="Keep finished shards here: stopped, the same command goes on.", rich_help_panel=LONG),
]
ScheduleOut = Annotated[Path, typer.Option("-o", "--out", help="Where the schedule goes.")]
PIPELINE = "Diffusers pipelines"
Prompts = Annotated[Path | None, typer.Option(help="A text file, a prompt per line.", rich_help_panel=PIPELINE)]
NegativePrompt = Annotated[str | None, typer.Option(rich_help_panel=PIPELINE)]
GuidanceScale = Annotated[float | None, typer.Option(rich_help_panel=PIPELINE)]
Height = Annotated[int | None, typer.Option(rich_help_panel=PIPELINE)]
Width = Annotated[int | None, typer.Option(rich_help_panel=PIPELINE)]
Dtype = Annotated[str, typer.Option(help="float32, float16 or bfloat16.", rich_help_panel=PIPELINE)]
Device = Annotated[str, typer.Option(help="cpu, cuda, mps, ...", rich_help_panel=PIPELINE)]


TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Run the code that a hub repository brings along.", rich_help_panel=PIPELINE
    ),
]


def main() -> None:
    """Run a verb; what the user can mend is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no reason to fail
    warnings.showwarning = _show_warning
    try:
        app()
    except GeoSprintError as wrong:
        print(f"geosprint: {wrong}", file=sys.stderr)
        sys.exit(2)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"geosprint: warning: {message}", file=sys.stderr)


def _version(asked: bool) -> None:
    if asked:
        print(f"geosprint {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command()
def models(as_json: Json = False) -> None:
    """List the models in the box."""
    from geosprint.models.registry import models_in_the_box
    from geosprint.report.text import show_table

    rows = list(models_in_the_box().items())
    content = [{"name": name, "description": text} for name, text in rows]
    _tell(as_json, content, lambda: show_table(("model", "what it is"), rows))


@app.command()
def extract(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{MODEL_HELP}; {PIPELINE_HELP}; or trajectories.safetensors recorded before, to profile them anew.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the profile goes.")] = Path("profile.json"),
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
    label: Label = None,
    guidance: Guidance = None,
    prompts: Prompts = None,
    negative_prompt: NegativePrompt = None,
    guidance_scale: GuidanceScale = None,
    height: Height = None,
    width: Width = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Annotated[str | None, typer.Option(help="Of the hub repository.", rich_help_panel=PIPELINE)] = None,
    token: Annotated[str | None, typer.Option(envvar="HF_TOKEN", help="For the hub.", rich_help_panel=PIPELINE)] = None,
    cache_dir: Annotated[Path | None, typer.Option(help="Of the hub.", rich_help_panel=PIPELINE)] = None,
    trust_remote_code: TrustRemoteCode = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Record reference trajectories of a model and find where they bend."""
    from geosprint import load_model
    from geosprint.extraction import extract_pass, extract_share
    from geosprint.integrations.adapter import names_pipeline
    from geosprint.profile import Settings
    from geosprint.reference import ReferencePass
    from geosprint.report.text import show_profile, summary
    from geosprint.shards.team import joined_team

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
        profile = _profile_in_memory(model, save_trajectories, asked, label, guidance)
    else:
        inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
        how = "nothing was kept; with --work DIR, a stopped run can go on"
        if work:
            how = f"finished shards are in {work}, and the same command goes on"
        with _long_run(how), joined_team() as team:
            if names_pipeline(model):
                from geosprint import load_pipeline

                loaded = load_pipeline(model, dtype, device, revision, token, cache_dir, trust_remote_code)
            else:
                loaded = load_model(model, label, guidance)
            if shard is not None and work is not None:
                made = extract_share(loaded, asked, work, _share(shard), inputs, progress=True, team=team)
                content = {"work": str(work), "shards": made}
                if team.leads:
                    _tell(as_json, content, lambda: print(f"share {shard}: {made} shard{'s' * (made != 1)} → {work}"))
                return
            profile = extract_pass(loaded, asked, work, inputs, progress=True, team=team)
        if not team.leads:
            return
    profile.save(out)
    _tell(as_json, {"profile": str(out), **summary(profile)}, lambda: show_profile(profile, out))


@app.command()
def merge(
    work: Annotated[Path, typer.Argument(metavar="DIR", help="The work directory of `geosprint extract`.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the profile goes.")] = Path("profile.json"),
    as_json: Json = False,
) -> None:
    """Make the profile of a work directory whose shards independent jobs have left."""
    from geosprint.extraction import merge as merge_shards
    from geosprint.report.text import show_profile, summary

    profile = merge_shards(work, progress=True)
    profile.save(out)
    _tell(as_json, {"profile": str(out), **summary(profile)}, lambda: show_profile(profile, out))


@app.command()
def inspect(
    profile: ProfilePath,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also plot the profile into this PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a profile holds."""
    from geosprint.profile import CurvatureProfile
    from geosprint.report.text import show_profile, summary

    if out:
        _require_suffix(out, ".png")
    loaded = CurvatureProfile.load(profile)
    if out:
        from geosprint.report.plots import plot_profile

        plot_profile(loaded, out)
    _tell(as_json, summary(loaded), lambda: show_profile(loaded, profile))


@app.command()
def schedule(
    profile: ProfilePath,
    steps: Annotated[int, typer.Option(help="Network calls the schedule may make, K.")],
    out: ScheduleOut = Path("schedule.json"),
    blend: Blend = 0.6,
    literal: Literal = False,
    top_k: Annotated[
        bool, typer.Option("--top-k", help="The paper's naive ablation: the K most retained steps.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build a schedule of exactly K steps from a profile."""
    from geosprint.profile import CurvatureProfile
    from geosprint.report.text import listed_steps, show_schedule
    from geosprint.schedule import build_schedule, top_k_schedule

    _require_another(out, profile)
    loaded = CurvatureProfile.load(profile)
    made = top_k_schedule(loaded, steps, literal) if top_k else build_schedule(loaded, steps, blend, literal)
    made.save(out)
    _tell(as_json, {"schedule": str(out), **listed_steps(made)}, lambda: show_schedule(made, out))


@app.command()
def budget(
    profile: ProfilePath,
    target_score: Annotated[float, typer.Option(help="The score alpha_traj that the schedule must reach.")],
    out: ScheduleOut = Path("schedule.json"),
    plot: Annotated[Path | None, typer.Option(help="Also plot score against K into this PNG.")] = None,
    blend: Blend = 0.6,
    literal: Literal = False,
    as_json: Json = False,
) -> None:
    """Find the fewest steps whose schedule meets a target score."""
    from geosprint.extraction import find_budget
    from geosprint.profile import CurvatureProfile
    from geosprint.report.text import listed_steps, show_budget

    _require_another(out, profile)
    if plot:
        _require_suffix(plot, ".png")
    found = find_budget(CurvatureProfile.load(profile), target_score, blend, literal)
    found.schedule.save(out)
    if plot:
        from geosprint.report.plots import plot_budget

        plot_budget(found, plot)
    content = {"schedule": str(out), "score": found.score, "settled": found.settled, "curve": found.curve}
    _tell(as_json, {**content, **listed_steps(found.schedule)}, lambda: show_budget(found, out))


@app.command()
def sample(
    model: AnyModelName,
    schedule: Annotated[Path | None, typer.Option(help="A schedule.json.")] = None,
    steps: Annotated[int | None, typer.Option(help="Instead of --schedule: so many steps of --spacing.")] = None,
    spacing: Annotated[
        str,
        typer.Option(
            help="uniform-leading, uniform-trailing, uniform-linspace, quadratic, logsnr, karras, beta or kl-optimal; "
            "ays-sd15, ays-sdxl or ays-svd for the models they were made for."
        ),
    ] = "uniform-trailing",
    number: Annotated[int, typer.Option("-n", "--number", help="Samples to draw.")] = 16,
    solver: SolverName = "ddim",
    eta: Eta = 0.0,
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            help="A .png for a picture of all, a .safetensors for the numbers, a folder for a PNG of each.",
        ),
    ] = Path("samples.png"),
    batch: Annotated[int, typer.Option(help="Samples that go through the model together.")] = 32,
    label: Label = None,
    guidance: Guidance = None,
    prompts: Prompts = None,
    negative_prompt: NegativePrompt = None,
    guidance_scale: GuidanceScale = None,
    height: Height = None,
    width: Width = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    trust_remote_code: TrustRemoteCode = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw samples with a schedule, or with a uniform spacing."""
    if (schedule is None) == (steps is None):
        raise ScheduleError("give either --schedule FILE or --steps K, one of the two")
    _require_suffix(out, ".png", ".safetensors", "")
    if number < 1:
        raise ScheduleError(f"-n must be at least 1, got {number}")
    from geosprint import StepSchedule, baseline_schedule
    from geosprint.integrations.adapter import decoder_of, load_any_model
    from geosprint.sampling import CountedModel, save_samples
    from geosprint.sampling import sample as draw
    from geosprint.shards.team import joined_team

    inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
    seeds = range(seed, seed + number)
    with _long_run("nothing was kept; the same command starts again"), joined_team() as team:
        loaded = load_any_model(model, label, guidance, inputs, dtype, device, trust_remote_code)
        if len(loaded.shape) != 3:  # a folder is for pictures
            _require_suffix(out, ".png", ".safetensors")
        decode = None if out.suffix == ".safetensors" else decoder_of(loaded, batch)
        chosen = StepSchedule.load(schedule) if schedule else baseline_schedule(spacing, loaded.noise, steps or 0)
        chosen.check_fits(loaded.noise, loaded.name)
        chosen.warn_of_other_conditions(getattr(loaded, "conditions", {}))
        counted = CountedModel(loaded)
        samples = draw(counted, chosen.timesteps, seeds, solver, eta, batch, progress=team.leads, team=team)
        nfe = team.total(counted.nfe)
    if not team.leads:
        return
    if decode is None:
        save_samples(samples, out)
    elif out.suffix:
        from geosprint.report.plots import picture_samples

        picture_samples(decode(samples), out)
    else:
        from geosprint.metrics.pictures import save_pngs

        save_pngs(decode(samples), out)
    content = {"samples": str(out), "number": number, "nfe": nfe, "steps": len(chosen), "solver": solver}
    _tell(as_json, content, lambda: print(f"{number} samples, {nfe / number:g} network calls each → {out}"))


@app.command()
def export(
    schedule: Annotated[Path, typer.Argument(metavar="SCHEDULE", help="A schedule.json.")],
    to: Annotated[str, typer.Option(help="diffusers, comfyui, comfyui-node, a1111, sdcpp, kdiffusion or json.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A file instead of the terminal.")] = None,
) -> None:
    """Put a schedule into the words of another tool."""
    from geosprint import StepSchedule
    from geosprint.files import write_text
    from geosprint.integrations.export import export as exported

    text = exported(StepSchedule.load(schedule), to)
    if out:
        write_text(out, text)
    print(f"{out}" if out else text, end="\n" if out else "")


@app.command()
def tune(
    model: AnyModelName,
    steps: Annotated[str, typer.Option(help="Numbers of steps, separated by commas; they share the fine walks.")],
    solver: Annotated[
        str, typer.Option(help="ddim, euler, heun, dpmpp-2m or unipc; fitted: how to step is fitted, too.")
    ] = "ddim",
    budget_nfe: Annotated[int, typer.Option(help="Network calls that one schedule may cost, all included.")] = 20_000,
    out: ScheduleOut = Path("schedule.json"),
    measure: Annotated[
        str,
        typer.Option(help="What shall be small: rmse, or a distance in features: classifier, package.module:factory."),
    ] = "rmse",
    against: Annotated[Path | None, typer.Option(help="A schedule.json of yours that must be beaten too.")] = None,
    batch: Annotated[int, typer.Option(help="Samples that go through the model together.")] = 32,
    label: Label = None,
    guidance: Guidance = None,
    prompts: Prompts = None,
    negative_prompt: NegativePrompt = None,
    guidance_scale: GuidanceScale = None,
    height: Height = None,
    width: Width = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Find the best schedule for a model, a solver and a number of steps; never worse than a closed form."""
    from geosprint.integrations.adapter import load_any_model
    from geosprint.report.text import listed_steps, show_fitted
    from geosprint.report.tuning import plot_tuned, show_tuned
    from geosprint.schedule import StepSchedule
    from geosprint.tuning.both import FITTED, tune_and_fit
    from geosprint.tuning.run import tune as tune_schedules

    _require_suffix(out, ".json")
    wanted = [_whole(part, "--steps") for part in _listed(steps)]
    yours = StepSchedule.load(against) if against else None
    inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
    loaded = load_any_model(model, label, guidance, inputs, dtype, device)
    if solver == FITTED:
        if yours is not None or measure != "rmse":
            raise ScheduleError("--solver fitted takes neither --against nor --measure; leave them out")
        for k in wanted:
            solved = tune_and_fit(loaded, k, budget_nfe, seed, batch, progress=True)
            path = solved.save(out if len(wanted) == 1 else out.with_stem(f"{out.stem}-{k}"))
            content = {"solver": str(path), **solved.validation, **listed_steps(solved.schedule)}
            _tell(as_json, content, partial(show_fitted, solved, path))
        return
    found = tune_schedules(loaded, wanted, solver, budget_nfe, measure, yours, seed, batch, progress=True)
    named = {one: out if len(found) == 1 else out.with_stem(f"{out.stem}-{len(one.schedule)}") for one in found}
    files = [one.schedule.save(path) for one, path in named.items()]
    files.append(plot_tuned(found, out.with_suffix(".png")))
    summaries = [{**one.summary(), "schedule": str(path)} for one, path in named.items()]
    _tell(as_json, summaries, lambda: show_tuned(found, files))


@app.command()
def fit(
    model: AnyModelName,
    steps: Annotated[int, typer.Option(help="Network calls the solver may make, K.")],
    schedule: Annotated[
        Path | None, typer.Option(help="A schedule.json of K steps; the closed form that suits best, if left out.")
    ] = None,
    order: Annotated[int, typer.Option(help="Predictions that a step looks at, 1 to 4.")] = 4,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the solver goes.")] = Path("solver.json"),
    walks: Annotated[int, typer.Option(help="Fine walks to learn from.")] = 48,
    unseen: Annotated[int, typer.Option(help="Fine walks that only judge.")] = 32,
    budget_nfe: Annotated[int, typer.Option(help="Network calls that the fit may cost, all included.")] = 20_000,
    label: Label = None,
    guidance: Guidance = None,
    prompts: Prompts = None,
    negative_prompt: NegativePrompt = None,
    guidance_scale: GuidanceScale = None,
    height: Height = None,
    width: Width = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit how to step: a solver of K steps for a model, never worse than DPM++ 2M and DDIM on its schedule."""
    from geosprint.fitting.fit import fit as fit_solver
    from geosprint.integrations.adapter import load_any_model
    from geosprint.report.text import listed_steps, show_fitted
    from geosprint.schedule import StepSchedule

    _require_suffix(out, ".json")
    if schedule:
        _require_another(out, schedule)
    place = StepSchedule.load(schedule) if schedule else None
    inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
    with _long_run("nothing was kept; the same command starts again"):
        loaded = load_any_model(model, label, guidance, inputs, dtype, device)
        fitted = fit_solver(loaded, steps, place, order, seed, walks, unseen, budget_nfe, progress=True)
    fitted.save(out)
    nfe = fitted.schedule.provenance["calls"]
    content = {"solver": str(out), "nfe": nfe, **fitted.validation, **listed_steps(fitted.schedule)}
    _tell(as_json, content, lambda: show_fitted(fitted, out))


@app.command()
def compare(
    model: AnyModelName,
    steps: Annotated[str, typer.Option(help="Numbers of steps, separated by commas.")] = "5,10,20",
    solver: Annotated[
        str, typer.Option(help="Solvers, separated by commas: ddim, euler, heun, dpmpp-2m, unipc, deis, ipndm.")
    ] = "ddim",
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas; all that apply, if left out.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The directory of results; what is there is not measured again.")
    ] = Path("out/compare"),
    quick: Annotated[bool, typer.Option("--quick", help="A first look: fewer samples, no ld3-l2 and fitted.")] = False,
    number: Annotated[int | None, typer.Option("-n", "--number", help="Fresh samples to judge by; 256.")] = None,
    trajectories: Annotated[int | None, typer.Option(help="Recorded for the methods that look at them; 100.")] = None,
    reference_steps: Annotated[int | None, typer.Option(help="Steps of each recorded trajectory; 200.")] = None,
    fine_steps: Annotated[int | None, typer.Option(help="Heun steps of the solve that is the truth; 100.")] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Of Fréchet distances: raw, classifier, inception or package.module:factory."),
    ] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="An npz with mu and sigma of the data set in these features.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Samples that go through the model together.")] = 32,
    label: Label = None,
    guidance: Guidance = None,
    prompts: Prompts = None,
    negative_prompt: NegativePrompt = None,
    guidance_scale: GuidanceScale = None,
    height: Height = None,
    width: Width = None,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    trust_remote_code: TrustRemoteCode = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure every schedule there is on a model, side by side, on fresh noise."""
    from geosprint.comparison.plan import QUICK, Plan
    from geosprint.comparison.results import summary
    from geosprint.comparison.run import compare as compare_methods
    from geosprint.comparison.statistics import read_statistics
    from geosprint.integrations.adapter import load_any_model
    from geosprint.report.comparison import leave_files, show_comparison
    from geosprint.shards.team import joined_team

    asked: dict[str, Any] = {
        "samples": number,
        "trajectories": trajectories,
        "reference_steps": reference_steps,
        "fine_steps": fine_steps,
        "features": features,
        "methods": _listed(methods) if methods else None,
    }
    plan = replace(
        QUICK if quick else Plan(),
        steps=tuple(_whole(part, "--steps") for part in _listed(steps)),
        solvers=_listed(solver),
        seed=seed,
        batch=batch,
        **{option: value for option, value in asked.items() if value is not None},
    )
    known = read_statistics(statistics) if statistics else None
    inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
    with _long_run(f"what was measured is in {out}, and the same command goes on"), joined_team() as team:
        loaded = load_any_model(model, label, guidance, inputs, dtype, device, trust_remote_code)
        done = compare_methods(loaded, out, plan, known, progress=True, team=team)
    if not team.leads:
        return
    files = leave_files(done, out, shlex.join(["geosprint", *sys.argv[1:]]))
    _tell(as_json, {**summary(done), "files": [str(file) for file in files]}, lambda: show_comparison(done, files))


@app.command()
def demo(
    model: ModelName = "fashion",
    out: Annotated[Path, typer.Option("-o", "--out", help="The directory of results.")] = Path("out/demo"),
    steps: Annotated[int, typer.Option(help="Steps of every schedule, K.")] = 10,
    number: Annotated[int, typer.Option("-n", "--number", help="Fresh samples to measure on.")] = 64,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Do the whole job once on a model in the box: record, profile, build, sample, compare."""
    from geosprint.comparison.results import summary
    from geosprint.demo import run_demo
    from geosprint.models.registry import load_model
    from geosprint.report.comparison import show_comparison

    done = run_demo(load_model(model), out, steps, number, seed, progress=True)

    def show() -> None:
        show_comparison(done.comparison, done.files)
        print(done.headline)

    content = {**summary(done.comparison), "headline": done.headline, "files": [str(file) for file in done.files]}
    _tell(as_json, content, show)


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An experiment of the paper, or all; see --list.")
    ] = "all",
    model: Annotated[
        str | None, typer.Option(help=f"{MODEL_HELP}, or a pipeline; if left out, the preset's own.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="All of them in twenty minutes of two cores.")] = False,
    preset: Annotated[
        str, typer.Option(help="shipped, or the paper's own models and sizes: cifar10, church or sd15.")
    ] = "shipped",
    out: Annotated[Path, typer.Option("-o", "--out", help="The directory of results.")] = Path("out/reproduce"),
    prompts: Annotated[Path | None, typer.Option(help="For a pipeline: a text file, a prompt per line.")] = None,
    device: Annotated[str, typer.Option(help="For a pipeline: cpu, cuda, mps, ...")] = "cpu",
    seed: Seed = 0,
    list_them: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and say what holds."""
    from geosprint.experiments.base import QUICK, preset_named
    from geosprint.experiments.registry import EXPERIMENTS
    from geosprint.experiments.run import named_experiments
    from geosprint.experiments.run import reproduce as run_experiments
    from geosprint.report.text import show_table

    if list_them:
        rows = [(one.name, one.paper) for one in EXPERIMENTS.values()]
        _tell(as_json, dict(rows), lambda: show_table(("experiment", "in the paper"), rows))
        return
    named_experiments(name)
    asked: dict[str, Any] = {"model": model, "prompts": _lines(prompts) or None}
    setting = replace(
        QUICK if quick else preset_named(preset),
        seed=seed,
        device=device,
        progress=True,
        **{option: value for option, value in asked.items() if value is not None},
    )
    command = shlex.join(["geosprint", *sys.argv[1:]])
    found = []
    for finding in run_experiments(name, setting, out, command, quick=quick):
        if isinstance(finding, str):
            print(f"geosprint: {finding}", file=sys.stderr)
            continue
        found.append({"experiment": finding.name, "verdict": finding.verdict, "directory": str(out / finding.name)})
        if not as_json:
            print(
                f"\n{finding.name} ({EXPERIMENTS[finding.name].paper})\n  {finding.verdict}\n  → {out / finding.name}",
                flush=True,
            )
    if as_json:
        print(json.dumps(found))


@app.command()
def claims(
    results: Annotated[Path, typer.Argument(metavar="DIR", help="Where `geosprint reproduce` left its findings.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the page goes.")] = Path("claims.md"),
) -> None:
    """Judge every claim of the paper by what was found."""
    from geosprint.experiments.claims import ledger, read_findings
    from geosprint.files import write_text

    print(write_text(out, ledger(read_findings(results))))


@app.command()
def train(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="fashion, fashion-flow, fashion-reflow, cifar10 or fashion-classifier."),
    ],
    data: Annotated[Path, typer.Option(help="The directory that holds the files of the data set.")],
    runs: Annotated[Path, typer.Option(help="Where runs keep their checkpoints, each under its name.")] = Path("runs"),
    steps: Annotated[int | None, typer.Option(help="Instead of as many as the recipe says.")] = None,
    minutes: Annotated[float | None, typer.Option(help="As many steps as fit into this time.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The directory of the network, RUNS/NAME/network if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the first weights and of every step.")] = 0,
) -> None:
    """Train a network of the box yourself; stopped with Ctrl-C, the same command goes on."""
    from geosprint.models.registry import holds_network
    from geosprint.training.loop import recent_loss, steps_done
    from geosprint.training.run import export_trained
    from geosprint.training.run import train as train_network

    target = out or runs / name / "network"
    try:
        run = train_network(name, data, runs, seed=seed, steps=steps, minutes=minutes)
        export_trained(name, data, runs, target)
    except KeyboardInterrupt:
        done, planned = steps_done(runs / name)
        what = f"at step {done} of {planned}; the same command goes on from there"
        if not done:
            what = "before the first checkpoint; the same command starts again"
        print(f"geosprint: stopped {what}", file=sys.stderr)
        raise typer.Exit(130) from None
    print(f"{name}: {run.step} steps, {run.seconds / 60:.1f} minutes, loss {recent_loss(run):.4f} → {target}")
    if holds_network(str(target)):
        print(f"try it: geosprint sample {target} --steps 50")
    else:
        print(f"load it: as DIRECTORY/{name}, with load_classifier(DIRECTORY) of geosprint.models.pretrained")


def _profile_in_memory(
    model: str, save_to: Path | None, asked: ReferencePass, label: int | None, guidance: float | None
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
    _require_suffix(save_to, ".safetensors")
    walk = (asked.seeds, asked.steps, asked.solver, asked.eta, BATCH if asked.batch is None else asked.batch)
    recorded = record(load_model(model, label, guidance), *walk, predictions=True, progress=True)
    recorded.save(save_to)
    return profile_trajectories(recorded, asked.settings, progress=True)


@contextmanager
def _long_run(how: str) -> Iterator[None]:
    """Ctrl-C, the SIGTERM of a cluster and a lost process end a run with a word on how it goes on."""
    in_charge = threading.current_thread() is threading.main_thread()  # signals never reach other threads
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_charge else None
    try:
        yield
    except KeyboardInterrupt:
        print(f"geosprint: stopped; {how}", file=sys.stderr)
        raise typer.Exit(130) from None
    except TeamError as lost:
        raise TeamError(f"{lost}; {how}") from lost
    finally:
        if in_charge:
            signal.signal(signal.SIGTERM, before)


def _share(text: str) -> tuple[int, int]:
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal()):
        raise ScheduleError(f"--shard takes i/n with i in 1..n, such as 1/4, got {text!r}")
    return int(number), int(count)


def _tell(as_json: bool, content: Any, show: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(content))
    else:
        show()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole(text: str, option: str) -> int:
    if not text.isdecimal():
        raise ScheduleError(f"{option} takes whole numbers separated by commas, got {text!r}")
    return int(text)


def _require_suffix(path: Path, *suffixes: str) -> None:
    if path.suffix not in suffixes:
        raise FileError(f"the output must end in {' or '.join(filter(None, suffixes))}, got {path.name!r}")


def _require_another(out: Path, source: Path) -> None:
    if out.resolve() == source.resolve():
        raise FileError(f"{out} is what is being read; choose another place with -o")


def _inputs(prompts: Path | None, *others: Any) -> PipelineInputs | None:
    """What a pipeline shall draw; nothing, if nothing was said."""
    said = (_lines(prompts), *others)
    if all(part in ((), None) for part in said):
        return None
    from geosprint import PipelineInputs

    return PipelineInputs(*said)


def _lines(path: Path | None) -> tuple[str, ...]:
    """The prompts of a file, one per line, empty lines left out."""
    if path is None:
        return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as wrong:
        raise FileError(f"cannot read the prompts in {path}: {wrong}") from wrong
    return tuple(line.strip() for line in text.splitlines() if line.strip())


if __name__ == "__main__":
    main()
