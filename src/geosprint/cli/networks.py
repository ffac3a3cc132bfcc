"""Verbs about the networks in the box: models, train."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from geosprint.cli.options import Json
from geosprint.cli.running import tell


def models(as_json: Json = False) -> None:
    """List the models in the box."""
    from geosprint.models.registry import models_in_the_box
    from geosprint.report.terminal import show_table

    rows = list(models_in_the_box().items())
    content = [{"name": name, "description": text} for name, text in rows]
    tell(as_json, content, lambda: show_table(("model", "what it is"), rows))


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
        print(f"load it: as DIRECTORY/{name}, with load_classifier(DIRECTORY) of geosprint.models.networks")
