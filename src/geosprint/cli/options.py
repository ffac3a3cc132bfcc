"""Arguments and options that several verbs share, each described once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from geosprint.cli.running import call_of, prompts_in

if TYPE_CHECKING:
    from geosprint import PipelineInputs
    from geosprint.models.base import Model

MODEL_HELP = "A name from `geosprint models`, or package.module:factory"
PIPELINE_HELP = "a diffusers pipeline (directory or hub id)"
DRAWN = "What the model draws"
RUNNING = "How it runs"
MEASURING = "How it measures"

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP}.")]
AnyModelName = Annotated[str, typer.Argument(metavar="MODEL", help=f"{MODEL_HELP}; or {PIPELINE_HELP}.")]
ProfilePath = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile.json made by `geosprint extract`.")]
ProfileOut = Annotated[Path, typer.Option("-o", "--out", help="Where the profile goes.")]
ScheduleOut = Annotated[Path, typer.Option("-o", "--out", help="Where the schedule goes.")]
ResultsOut = Annotated[Path, typer.Option("-o", "--out", help="The directory of results.")]
Seed = Annotated[int, typer.Option(help="First seed; sample i has seed + i.")]
Batch = Annotated[int, typer.Option(help="Samples that go through the model together.", rich_help_panel=RUNNING)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Blend = Annotated[float, typer.Option(help="0: uniform in log-SNR, 1: curvature alone.")]
Eta = Annotated[float, typer.Option(help="Share of fresh noise in ddim, 0 to 1.")]
Work = Annotated[
    Path | None,
    typer.Option(help="Keep what is done in this directory: stopped, it goes on.", rich_help_panel=RUNNING),
]

TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Run the code that a pipeline brings along.", rich_help_panel=RUNNING),
]


@dataclass(frozen=True)
class ModelOptions:
    """What a verb may be told about the model that it loads; a field is an option."""

    prompts: Annotated[
        Path | None, typer.Option(help="Of a pipeline: a text file, a prompt per line.", rich_help_panel=DRAWN)
    ] = None
    negative_prompt: Annotated[str | None, typer.Option(help="Of a pipeline.", rich_help_panel=DRAWN)] = None
    guidance_scale: Annotated[
        float | None, typer.Option(help="Of a pipeline; its own, if left out.", rich_help_panel=DRAWN)
    ] = None
    height: Annotated[int | None, typer.Option(help="Of a pipeline, in pixels.", rich_help_panel=DRAWN)] = None
    width: Annotated[int | None, typer.Option(help="Of a pipeline, in pixels.", rich_help_panel=DRAWN)] = None
    call: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Any other argument of a pipeline, as in num_frames=17 or image=cat.png; or a .json file of them.",
            rich_help_panel=DRAWN,
        ),
    ] = None
    label: Annotated[
        int | None, typer.Option(help="Of a network in the box: a class; any, if left out.", rich_help_panel=DRAWN)
    ] = None
    guidance: Annotated[
        float | None, typer.Option(help="Of its label; other than 1, two network calls a step.", rich_help_panel=DRAWN)
    ] = None
    device: Annotated[str, typer.Option(help="cpu, cuda or mps; auto: the fastest one.", rich_help_panel=RUNNING)] = (
        "auto"
    )
    dtype: Annotated[
        str,
        typer.Option(
            help="float32, float16 or bfloat16; auto: half on a GPU.",
            rich_help_panel=RUNNING,
        ),
    ] = "auto"
    trust_remote_code: TrustRemoteCode = False

    def inputs(self) -> PipelineInputs | None:
        """What a pipeline shall draw; nothing, if nothing was said."""
        said = (prompts_in(self.prompts), self.negative_prompt, self.guidance_scale, self.height, self.width)
        if all(part in ((), None) for part in said) and not self.call:
            return None
        from geosprint import PipelineInputs

        return PipelineInputs(*said, call_of(self.call or ()))

    def load(self, model: str) -> Model:
        """The model of this name, or the pipeline as a model."""
        from geosprint.integrations.adapter import load_model

        given = (self.label, self.guidance, self.inputs(), self.dtype, self.device, self.trust_remote_code)
        return load_model(model, *given)


def takes_model_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Let the command line see the fields of `options: ModelOptions` as options of the verb itself."""
    hints = get_type_hints(ModelOptions, include_extras=True)
    shared = {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(ModelOptions)
    }
    own = inspect.signature(verb, eval_str=True).parameters

    @functools.wraps(verb)
    def command(**given: object) -> None:
        options = ModelOptions(**{name: given.pop(name) for name in shared})  # type: ignore[arg-type]
        verb(options=options, **given)

    flat = [parameter for name, parameter in own.items() if name != "options"]
    command.__signature__ = inspect.Signature([*flat, *shared.values()])  # type: ignore[attr-defined]
    return command
