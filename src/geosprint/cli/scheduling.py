"""Verbs that turn a profile into a schedule: schedule, budget, export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geosprint.cli.options import Blend, Json, Literal, ProfilePath, ScheduleOut
from geosprint.cli.running import require_another, require_suffix, tell


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
    from geosprint.report.terminal import listed_steps, show_schedule
    from geosprint.schedule import build_schedule, top_k_schedule

    require_another(out, profile)
    loaded = CurvatureProfile.load(profile)
    made = top_k_schedule(loaded, steps, literal) if top_k else build_schedule(loaded, steps, blend, literal)
    made.save(out)
    tell(as_json, {"schedule": str(out), **listed_steps(made)}, lambda: show_schedule(made, out))


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
    from geosprint.report.terminal import listed_steps, show_budget

    require_another(out, profile)
    if plot:
        require_suffix(plot, ".png")
    found = find_budget(CurvatureProfile.load(profile), target_score, blend, literal)
    found.schedule.save(out)
    if plot:
        from geosprint.report.plots import plot_budget

        plot_budget(found, plot)
    content = {"schedule": str(out), "score": found.score, "settled": found.settled, "curve": found.curve}
    tell(as_json, {**content, **listed_steps(found.schedule)}, lambda: show_budget(found, out))


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
