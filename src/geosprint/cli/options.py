"""Arguments and options that several verbs share, each described once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from geosprint.cli.running import call_of, prompts_in, require_suffix, require_writable

if TYPE_CHECKING:
    from geosprint import PipelineInputs
    from geosprint.models.base import Model


def option(said: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """An option as its help describes it, under other names than its parameter's if there are any."""
    return typer.Option(*names, help=said, rich_help_panel=panel, **more)


def writable(*suffixes: str, is_directory: bool = False) -> Callable[[Path | None], Path | None]:
    """What an option with an output is checked by: where nothing can be written, nothing runs."""

    def checked(path: Path | None) -> Path | None:
        if path:
            require_suffix(path, *suffixes)
            require_writable(path, is_directory=is_directory)
        return path

    return checked


def output(said: str, *suffixes: str, is_directory: bool = False) -> Any:
    """The option that says where the result goes."""
    return option(said, "-o", "--out", callback=writable(*suffixes, is_directory=is_directory))


def argument(name: str, said: str) -> Any:
    """What a verb is about."""
    return typer.Argument(metavar=name, help=said)


of_drawing, of_run, of_measuring, of_wish = (
    functools.partial(option, panel=panel)
    for panel in ("What the model draws", "How it runs", "How it measures", "Other wishes")
)
"""Options of one panel of the help."""

MODEL_HELP = "A name from `geosprint models`, or package.module:factory"
PIPELINE_HELP = "a diffusers pipeline (directory or hub id)"

AnyModelName = Annotated[str, argument("MODEL", f"{MODEL_HELP}; or {PIPELINE_HELP}.")]
ResultsOut = Annotated[Path, output("The directory of results.", is_directory=True)]
Seed = Annotated[int, option("First seed; sample i has seed + i.")]
Batch = Annotated[int, of_run("Samples that go through the model together.")]
Json = Annotated[bool, option("Print JSON instead of text.", "--json")]
Eta = Annotated[float, option("Share of fresh noise in ddim, 0 to 1.")]
Work = Annotated[
    Path | None,
    of_run("Keep what is done in this directory: stopped, it goes on.", callback=writable(is_directory=True)),
]
TrustRemoteCode = Annotated[bool, of_run("Run the code that a pipeline brings along.", "--trust-remote-code")]


@dataclass(frozen=True)
class ModelOptions:
    """What a verb may be told about the model that it loads; a field is an option."""

    prompts: Annotated[Path | None, of_drawing("Of a pipeline: a text file, a prompt per line.")] = None
    negative_prompt: Annotated[str | None, of_drawing("Of a pipeline.")] = None
    guidance_scale: Annotated[float | None, of_drawing("Of a pipeline; its own, if left out.")] = None
    height: Annotated[int | None, of_drawing("Of a pipeline, in pixels.")] = None
    width: Annotated[int | None, of_drawing("Of a pipeline, in pixels.")] = None
    call: Annotated[
        list[str] | None,
        of_drawing(
            "Any other argument of a pipeline, as in num_frames=17 or image=cat.png; or a .json file of them.",
            metavar="NAME=VALUE",
        ),
    ] = None
    label: Annotated[int | None, of_drawing("Of a network in the box: a class; any, if left out.")] = None
    guidance: Annotated[float | None, of_drawing("Of its label; other than 1, two network calls a step.")] = None
    device: Annotated[str, of_run("cpu, cuda or mps; auto: the fastest one.")] = "auto"
    dtype: Annotated[str, of_run("float32, float16 or bfloat16; auto: half on a GPU.")] = "auto"
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


def takes_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Let the command line see the fields of a parameter that is a group of options as options of the verb itself."""
    flat: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for name, parameter in inspect.signature(verb, eval_str=True).parameters.items():
        group, parts = parameter.annotation, [parameter]
        if is_dataclass(group):
            hints = get_type_hints(group, include_extras=True)
            parts = [parameter.replace(name=f.name, default=f.default, annotation=hints[f.name]) for f in fields(group)]
            groups[name] = (group, [part.name for part in parts])
        flat += [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in parts]

    @functools.wraps(verb)
    def command(**given: object) -> None:
        made = {name: group(**{part: given.pop(part) for part in parts}) for name, (group, parts) in groups.items()}
        verb(**made, **given)

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return command
