"""Verbs about the paper: reproduce, claims."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from geosprint.cli.options import MODEL_HELP, Json, ResultsOut, Seed
from geosprint.cli.running import prompts_in, tell, this_command


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
    out: ResultsOut = Path("out/reproduce"),
    prompts: Annotated[Path | None, typer.Option(help="For a pipeline: a text file, a prompt per line.")] = None,
    device: Annotated[str, typer.Option(help="For a pipeline: cpu, cuda, mps, ...")] = "cpu",
    seed: Seed = 0,
    list_them: Annotated[bool, typer.Option("--list", help="Only list the experiments.")] = False,
    as_json: Json = False,
) -> None:
    """Run the paper's experiments and say what holds."""
    from geosprint.paper.base import QUICK, preset_named
    from geosprint.paper.registry import EXPERIMENTS, named_experiments
    from geosprint.paper.registry import reproduce as run_experiments
    from geosprint.report.terminal import show_table

    if list_them:
        rows = [(one.name, one.paper) for one in EXPERIMENTS.values()]
        tell(as_json, dict(rows), lambda: show_table(("experiment", "in the paper"), rows))
        return
    named_experiments(name)
    asked: dict[str, Any] = {"model": model, "prompts": prompts_in(prompts) or None}
    setting = replace(
        QUICK if quick else preset_named(preset),
        seed=seed,
        device=device,
        progress=True,
        **{option: value for option, value in asked.items() if value is not None},
    )
    command = this_command()
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


def claims(
    results: Annotated[Path, typer.Argument(metavar="DIR", help="Where `geosprint reproduce` left its findings.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the page goes.")] = Path("claims.md"),
) -> None:
    """Judge every claim of the paper by what was found."""
    from geosprint.files import write_text
    from geosprint.paper.claims import ledger, read_findings

    print(write_text(out, ledger(read_findings(results))))
