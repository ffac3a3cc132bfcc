"""The command line: one verb per arrow from a model to samples."""

from __future__ import annotations

import io
import json
import shlex
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosprint import __version__
from geosprint.errors import FileError, GeoSprintError, ModelError, ScheduleError

if TYPE_CHECKING:
    from geosprint import PipelineInputs

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
SolverName = Annotated[str, typer.Option(help="ddim, ddpm, euler, heun, dpmpp-2m or unipc.")]
Eta = Annotated[float, typer.Option(help="Share of fresh noise in ddim, 0 to 1.")]
Label = Annotated[int | None, typer.Option(help="The class that a shipped network draws; any, if left out.")]
Guidance = Annotated[
    float | None, typer.Option(help="How much to exaggerate the label; other than 1, two calls a step.")
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
    batch: Annotated[int, typer.Option(help="Trajectories that go through the model together.")] = 32,
    save_trajectories: Annotated[
        Path | None, typer.Option(help="Also keep the raw states and predictions, as safetensors.")
    ] = None,
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
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Record reference trajectories of a model and find where they bend."""
    from geosprint import extract as extract_profile
    from geosprint import load_model, profile_trajectories, record
    from geosprint.integrations.adapter import names_pipeline
    from geosprint.profile import Settings
    from geosprint.report.text import show_profile, summary
    from geosprint.trajectory import Trajectories

    settings = Settings(window, levels, target_score, search, space, normalisation)
    asked = (trajectories, reference_steps, solver, settings, seed, eta, batch)
    if model.endswith(".safetensors"):
        profile = profile_trajectories(Trajectories.load(Path(model)), settings, progress=True)
    elif names_pipeline(model):
        from geosprint import load_pipeline

        if save_trajectories:
            raise ModelError(
                "--save-trajectories is for models; a pipeline's states are too large to keep, leave it out"
            )
        inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
        pipe = load_pipeline(model, dtype, device, revision, token, cache_dir)
        profile = extract_profile(pipe, *asked, progress=True, inputs=inputs)
    elif save_trajectories:
        _require_suffix(save_trajectories, ".safetensors")
        seeds = range(seed, seed + trajectories)
        recorded = record(
            load_model(model, label, guidance),
            seeds,
            reference_steps,
            solver,
            eta,
            batch,
            predictions=True,
            progress=True,
        )
        recorded.save(save_trajectories)
        profile = profile_trajectories(recorded, settings, progress=True)
    else:
        profile = extract_profile(load_model(model, label, guidance), *asked, progress=True)
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

    inputs = _inputs(prompts, negative_prompt, guidance_scale, height, width)
    loaded = load_any_model(model, label, guidance, inputs, dtype, device)
    if len(loaded.shape) != 3:  # a folder is for pictures
        _require_suffix(out, ".png", ".safetensors")
    decode = None if out.suffix == ".safetensors" else decoder_of(loaded, batch)
    chosen = StepSchedule.load(schedule) if schedule else baseline_schedule(spacing, loaded.noise, steps or 0)
    chosen.check_fits(loaded.noise, loaded.name)
    chosen.warn_of_other_conditions(getattr(loaded, "conditions", {}))
    counted = CountedModel(loaded)
    samples = draw(counted, chosen.timesteps, range(seed, seed + number), solver, eta, batch, progress=True)
    if decode is None:
        save_samples(samples, out)
    elif out.suffix:
        from geosprint.report.plots import picture_samples

        picture_samples(decode(samples), out)
    else:
        from geosprint.metrics.pictures import save_pngs

        save_pngs(decode(samples), out)
    content = {"samples": str(out), "number": number, "nfe": counted.nfe, "steps": len(chosen), "solver": solver}
    _tell(as_json, content, lambda: print(f"{number} samples, {counted.nfe / number:g} network calls each → {out}"))


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
def compare(
    model: AnyModelName,
    steps: Annotated[str, typer.Option(help="Numbers of steps, separated by commas.")] = "5,10,20",
    solver: Annotated[
        str, typer.Option(help="Solvers, separated by commas: ddim, euler, heun, dpmpp-2m, unipc.")
    ] = "ddim",
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas; all that apply, if left out.")
    ] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="The directory of results; what is there is not measured again.")
    ] = Path("out/compare"),
    quick: Annotated[bool, typer.Option("--quick", help="A first look: fewer samples, no ld3-l2.")] = False,
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
    loaded = load_any_model(model, label, guidance, inputs, dtype, device)
    try:
        done = compare_methods(loaded, out, plan, known, progress=True)
    except KeyboardInterrupt:
        print(f"geosprint: stopped; what was measured is in {out}, and the same command goes on", file=sys.stderr)
        raise typer.Exit(130) from None
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
