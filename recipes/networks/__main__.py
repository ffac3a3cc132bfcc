"""The command: `python -m recipes.networks NAME --data DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from geosprint.errors import GeoSprintError
from geosprint.models.registry import holds_network
from recipes.networks.loop import recent_loss, steps_done
from recipes.networks.run import TRAINABLE, export_trained, train

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(TRAINABLE)}.")],
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
    target = out or runs / name / "network"
    try:
        run = train(name, data, runs, seed=seed, steps=steps, minutes=minutes)
        export_trained(name, data, runs, target)
    except KeyboardInterrupt:
        done, planned = steps_done(runs / name)
        what = f"at step {done} of {planned}; the same command goes on from there"
        if not done:
            what = "before the first checkpoint; the same command starts again"
        print(f"stopped {what}", file=sys.stderr)
        raise typer.Exit(130) from None
    except GeoSprintError as wrong:  # what the user can mend is one sentence
        print(wrong, file=sys.stderr)
        raise typer.Exit(2) from None
    print(f"{name}: {run.step} steps, {run.seconds / 60:.1f} minutes, loss {recent_loss(run):.4f} → {target}")
    if holds_network(str(target)):
        print(f"try it: geosprint sample {target} --steps 50")
    else:
        print(f"load it: as DIRECTORY/{name}, with load_classifier(DIRECTORY) of geosprint.models.networks")


if __name__ == "__main__":
    app()
