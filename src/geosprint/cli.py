"""The command line: one verb per arrow from a model to samples."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from geosprint import __version__
from geosprint.errors import GeoSprintError, ScheduleError

if TYPE_CHECKING:
    from geosprint.demo import Demo
    from geosprint.profile import CurvatureProfile
    from geosprint.schedule import StepSchedule

# Everything that needs torch is imported inside a verb: --help must answer at once.

app = typer.Typer(
    help="Fewer network calls for the same samples: schedules from the geometry of denoising trajectories.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

ModelName = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A name from `geosprint models`, or package.module:factory (runs that code)."),
]
ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile.json made by `geosprint extract`.")]
Seed = Annotated[int, typer.Option(help="First seed; sample i has seed + i.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Blend = Annotated[float, typer.Option(help="0: uniform in log-SNR, 1: curvature alone.")]
Literal = Annotated[
    bool, typer.Option("--literal", help="Count the forced first window as retained, as the paper does.")
]
SolverName = Annotated[str, typer.Option(help="ddim, ddpm, euler, heun or dpmpp-2m.")]
Eta = Annotated[float, typer.Option(help="Share of fresh noise in ddim, 0 to 1.")]


def main() -> None:
    """Run a verb; what the user can mend is one sentence and exit code 2."""
    try:
        app()
    except GeoSprintError as wrong:
        print(f"geosprint: {wrong}", file=sys.stderr)
        sys.exit(2)


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
    from geosprint.models.registry import MODELS

    rows = [(name, entry.describe) for name, entry in MODELS.items()]
    _tell(
        as_json,
        [{"name": name, "description": text} for name, text in rows],
        lambda: _table(("model", "what it is"), rows),
    )


@app.command()
def extract(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="As for `sample`; or trajectories.safetensors recorded before, to profile them anew."
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the profile goes.")] = Path("profile.json"),
    trajectories: Annotated[int, typer.Option(help="Reference trajectories, B.")] = 100,
    reference_steps: Annotated[int, typer.Option(help="Steps of each, N.")] = 200,
    solver: SolverName = "ddim",
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
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Record reference trajectories of a model and find where they bend."""
    from geosprint import extract as extract_profile
    from geosprint import load_model, profile_trajectories, record
    from geosprint.profile import Settings
    from geosprint.trajectory import Trajectories

    settings = Settings(window, levels, target_score, search, space, normalisation)
    if model.endswith(".safetensors"):
        profile = profile_trajectories(Trajectories.load(Path(model)), settings)
    elif save_trajectories:
        seeds = range(seed, seed + trajectories)
        recorded = record(
            load_model(model), seeds, reference_steps, solver, eta, batch, predictions=True, progress=True
        )
        recorded.save(save_trajectories)
        profile = profile_trajectories(recorded, settings)
    else:
        profile = extract_profile(
            load_model(model), trajectories, reference_steps, solver, settings, seed, eta, batch, progress=True
        )
    profile.save(out)
    _tell(as_json, {"profile": str(out), **_summary(profile)}, lambda: _show_profile(profile, out))


@app.command()
def inspect(
    profile: ProfilePath,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Also plot the profile into this PNG.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a profile holds."""
    from geosprint.profile import CurvatureProfile

    loaded = CurvatureProfile.load(profile)
    if out:
        from geosprint.report.plots import plot_profile

        plot_profile(loaded, out)
    _tell(as_json, _summary(loaded), lambda: _show_profile(loaded, profile))


@app.command()
def schedule(
    profile: ProfilePath,
    steps: Annotated[int, typer.Option(help="Network calls the schedule may make, K.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the schedule goes.")] = Path("schedule.json"),
    blend: Blend = 0.6,
    literal: Literal = False,
    top_k: Annotated[
        bool, typer.Option("--top-k", help="The paper's naive ablation: the K most retained steps.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Build a schedule of exactly K steps from a profile."""
    from geosprint.profile import CurvatureProfile
    from geosprint.schedule import build_schedule, top_k_schedule

    loaded = CurvatureProfile.load(profile)
    made = top_k_schedule(loaded, steps, literal) if top_k else build_schedule(loaded, steps, blend, literal)
    made.save(out)
    _tell(as_json, {"schedule": str(out), **_steps(made)}, lambda: _show_schedule(made, out))


@app.command()
def budget(
    profile: ProfilePath,
    target_score: Annotated[float, typer.Option(help="The score alpha_traj that the schedule must reach.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the schedule goes.")] = Path("schedule.json"),
    plot: Annotated[Path | None, typer.Option(help="Also plot score against K into this PNG.")] = None,
    blend: Blend = 0.6,
    literal: Literal = False,
    as_json: Json = False,
) -> None:
    """Find the fewest steps whose schedule meets a target score."""
    from geosprint.extract import find_budget
    from geosprint.profile import CurvatureProfile

    found = find_budget(CurvatureProfile.load(profile), target_score, blend, literal)
    found.schedule.save(out)
    if plot:
        from geosprint.report.plots import plot_budget

        plot_budget(found, plot)
    curve = {int(k): float(score) for k, score in zip(found.curve_steps, found.curve_scores, strict=True)}
    content = {
        "schedule": str(out),
        "score": found.score,
        "settled": found.settled,
        **_steps(found.schedule),
        "curve": curve,
    }

    def show() -> None:
        print(f"{len(found.schedule)} steps reach a score of {found.score:.3g} (target {target_score:g}); "
              f"every K from {found.settled} on does.")  # fmt: skip
        _table(("K", "score"), [(k, f"{curve[k]:.3g}") for k in (2, 3, 5, 8, 10, 15, 20, 30, 50, 100) if k in curve])
        _show_schedule(found.schedule, out)

    _tell(as_json, content, show)


@app.command()
def sample(
    model: ModelName,
    schedule: Annotated[Path | None, typer.Option(help="A schedule.json.")] = None,
    steps: Annotated[int | None, typer.Option(help="Instead of --schedule: so many steps of --spacing.")] = None,
    spacing: Annotated[
        str, typer.Option(help="uniform-leading, uniform-trailing, uniform-linspace, quadratic or logsnr.")
    ] = "uniform-trailing",
    number: Annotated[int, typer.Option("-n", "--number", help="Samples to draw.")] = 16,
    solver: SolverName = "ddim",
    eta: Eta = 0.0,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="A .png for a picture, a .safetensors for the numbers.")
    ] = Path("samples.png"),
    batch: Annotated[int, typer.Option(help="Samples that go through the model together.")] = 32,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Draw samples with a schedule, or with a uniform spacing."""
    if (schedule is None) == (steps is None):
        raise ScheduleError("give either --schedule FILE or --steps K, one of the two")
    if out.suffix not in (".png", ".safetensors"):
        raise ScheduleError(f"the output must end in .png or .safetensors, got {out.name!r}")
    if number < 1:
        raise ScheduleError(f"-n must be at least 1, got {number}")
    from safetensors.torch import save_file

    from geosprint import StepSchedule, baseline_schedule, load_model
    from geosprint.files import write_whole
    from geosprint.sampling import CountedModel
    from geosprint.sampling import sample as draw

    loaded = load_model(model)
    chosen = StepSchedule.load(schedule) if schedule else baseline_schedule(spacing, loaded.noise, steps or 0)
    chosen.check_fits(loaded.noise, loaded.name)
    counted = CountedModel(loaded)
    samples = draw(counted, chosen.timesteps, range(seed, seed + number), solver, eta, batch, progress=True)
    if out.suffix == ".png":
        from geosprint.report.plots import save_samples

        save_samples(samples, out)
    else:
        write_whole(out, lambda to: save_file({"samples": samples.contiguous()}, to))
    per_sample = counted.nfe / number
    content = {"samples": str(out), "number": number, "nfe": counted.nfe, "steps": len(chosen), "solver": solver}
    _tell(as_json, content, lambda: print(f"{number} samples, {per_sample:g} network calls each → {out}"))


@app.command()
def demo(
    model: ModelName = "digits",
    out: Annotated[Path, typer.Option("-o", "--out", help="The directory of results.")] = Path("out/demo"),
    steps: Annotated[int, typer.Option(help="Steps of every schedule, K.")] = 10,
    number: Annotated[int, typer.Option("-n", "--number", help="Fresh samples to measure on.")] = 256,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Do the whole job once on a model in the box: record, profile, build, sample, compare."""
    from geosprint.demo import run_demo
    from geosprint.models.registry import load_model

    done = run_demo(load_model(model), out, steps, number, seed, progress=True)
    rows = [
        {"method": r.method, "start": r.start, "nfe": r.nfe, "rmse": r.rmse.__dict__, "frechet": r.frechet}
        for r in done.rows
    ]
    _tell(as_json, {"rows": rows, "files": [str(f) for f in done.files]}, lambda: _show_demo(done))


def _tell(as_json: bool, content: Any, show: Any) -> None:
    if as_json:
        print(json.dumps(content))
    else:
        show()


def _table(header: tuple[str, ...], rows: list[tuple[Any, ...]], bold: str = "") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for i, title in enumerate(header):
        is_number = str(rows[0][i])[:1].isdigit()
        table.add_column(title, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(str(cell) for cell in row), style="bold" if row[0] == bold else None)
    Console().print(table)


def _summary(profile: CurvatureProfile) -> dict[str, Any]:
    zones = _zones(profile)
    stability = profile.stability() if len(profile.kept) > 1 else None
    return {
        "model": profile.origin.model,
        "trajectories": len(profile.kept),
        "reference_steps": len(profile.timesteps) - 1,
        "solver": profile.origin.solver,
        "nfe": profile.nfe,
        "settings": profile.settings.__dict__,
        "retained_mean": float(profile.retained_counts.mean()),
        "retained_min": int(profile.retained_counts.min()),
        "retained_max": int(profile.retained_counts.max()),
        "score_mean": float(profile.scores.mean()),
        "retention_by_zone": zones,
        "stability": stability.__dict__ if stability else None,
    }


def _zones(profile: CurvatureProfile) -> dict[str, float]:
    """Mean retention early, midway and late (Section 5.4), the forced window left out."""
    clock = profile.noise.clock(profile.timesteps[:-1])
    zones = {
        "early (t/T > 0.8)": clock > 0.8,
        "middle": (clock >= 0.2) & (clock <= 0.8),
        "late (t/T < 0.2)": clock < 0.2,
    }
    return {name: float(profile.free_retention[zone].mean()) for name, zone in zones.items() if zone.any()}


def _show_profile(profile: CurvatureProfile, path: Path) -> None:
    found = _summary(profile)
    recorded = f"{found['trajectories']} trajectories of {found['reference_steps']} {found['solver']} steps"
    print(f"{path}: {found['model']}, {recorded} ({found['nfe']:,} network calls)")
    print(f"  retention w(t), noise → clean  {_sparkline(profile.free_retention)}")
    for zone, retention in found["retention_by_zone"].items():
        print(f"  {zone:<30} {retention:.3f}")
    print(f"  states a sample needs          {found['retained_mean']:.1f} of {found['reference_steps'] + 1} "
          f"({found['retained_min']} to {found['retained_max']}), score {found['score_mean']:.2g}")  # fmt: skip
    if stability := found["stability"]:
        print(f"  stability, half against half   correlation {stability['correlation']:.2f}, same steps within 5: "
              f"{stability['fuzzy_jaccard']:.0%} (exactly: {stability['jaccard']:.0%})")  # fmt: skip


def _sparkline(values: Any, width: int = 50) -> str:
    import numpy as np

    bars = "▁▂▃▄▅▆▇█"
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    top = means.max() or 1.0
    return "".join(bars[min(int(value / top * len(bars)), len(bars) - 1)] for value in means)


def _steps(schedule: StepSchedule) -> dict[str, Any]:
    return {
        "steps": len(schedule),
        "timesteps": schedule.timesteps.tolist(),
        "sigmas": schedule.sigmas.tolist(),
        "log_snr": schedule.log_snr.tolist(),
    }


def _show_schedule(schedule: StepSchedule, path: Path) -> None:
    print(f"{path}: {len(schedule)} steps")
    print("  timesteps  " + ", ".join(f"{t:g}" for t in schedule.timesteps))
    print("  sigmas     " + ", ".join(f"{s:.4f}" for s in schedule.sigmas))


def _show_demo(done: Demo) -> None:
    from geosprint.demo import headline

    rows = [
        (
            r.method,
            f"{r.start:g}",
            f"{r.nfe:g}",
            f"{r.rmse.value:.4f}",
            f"{r.rmse.low:.4f} – {r.rmse.high:.4f}",
            f"{r.frechet:.3f}",
        )
        for r in done.rows
    ]
    _table(("schedule", "start", "calls", "RMSE", "95 % interval", "Fréchet²"), rows, bold="geosprint")
    print(headline(done.rows))
    for file in done.files:
        print(f"  {file}")


if __name__ == "__main__":
    main()
