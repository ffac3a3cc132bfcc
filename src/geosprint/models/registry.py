"""Which models there are by name, and how a name or `package.module:factory` becomes one."""

from __future__ import annotations

import importlib
import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geosprint.errors import ModelError
from geosprint.models import ASSETS

if TYPE_CHECKING:
    from geosprint.models.base import Model

PROMPTS = "prompts.txt"  # one per line, beside the pipeline that they are for

MODELS: dict[str, str] = {
    "gaussian": "Gaussian with the spectrum of photographs, 3×32×32; every answer known in closed form",
    "mixture": "eight Gaussians on a circle in the plane; exact denoiser",
    "digits": "handwritten digits, 1×8×8; the ideal denoiser of a kernel density",
}
"""Exact models and what they draw; imported when they are made, since listing them must not wait for torch."""

NETWORKS: dict[str, str] = {
    "fashion": "clothes, 1×28×28; a trained noise-predicting network, with labels 0-9 and guidance",
    "fashion-flow": "the same clothes as a rectified flow, trained from it",
    "fashion-reflow": "that flow after one round of reflow on its own pairs",
    "cifar10": "small photographs, 3×32×32; a trained noise-predicting network without labels",
}
"""Shipped networks and what they draw."""

PIPELINES: dict[str, str] = {
    "scenes": "pictures of shapes by prompt, 3×64×64; a trained Stable Diffusion pipeline in miniature, with guidance",
}
"""Shipped diffusers pipelines and what they draw."""


def models_in_the_box() -> dict[str, str]:
    """Names and descriptions."""
    return {**MODELS, **NETWORKS, **PIPELINES}


def path_of(name: str) -> Path:
    """The directory of a network or a pipeline in the box; diffusers opens that of a pipeline by itself."""
    if name not in {**NETWORKS, **PIPELINES}:
        raise ModelError(f"these have a directory in the box: {', '.join({**NETWORKS, **PIPELINES})}; got {name!r}")
    return ASSETS / name


def bundled_prompts(name: str) -> tuple[str, ...]:
    """What a pipeline in the box draws unless it is told otherwise."""
    return tuple((path_of(name) / PROMPTS).read_text(encoding="utf-8").splitlines())


def is_in_the_box(name: str) -> bool:
    """Whether this names a model here, a network that was trained here or the user's own factory."""
    return name in models_in_the_box() or holds_network(name) or (":" in name and not os.path.isdir(name))


def names_pipeline(name: str) -> bool:
    """Whether this is a pipeline in the box, or a directory or a hub id of one."""
    return name in PIPELINES or (not is_in_the_box(name) and (os.path.isdir(name) or is_hub_id(name)))


def is_hub_id(name: str) -> bool:
    """Whether this can be `owner/name` on the Hugging Face hub."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) is not None


def holds_network(directory: str) -> bool:
    """Whether this is a directory that `python -m recipes.networks` wrote."""
    return os.path.isfile(os.path.join(directory, "card.json"))  # unlike Path's, says no to any strange name


def model_named(name: str, label: int | None = None, guidance: float | None = None) -> Model:
    """A model in the box but its pipelines, a directory of `python -m recipes.networks`, or `package.module:factory`.

    A network draws one class if it is told a label, and exaggerates it by the guidance scale.
    A factory is code that runs.
    """
    if name in NETWORKS or holds_network(name):
        from geosprint.models.networks import load_pretrained

        directory = path_of(name) if name in NETWORKS else Path(name).resolve()
        return load_pretrained(directory.name, labels=label, guidance=guidance, assets=directory.parent)
    if label is not None or guidance is not None:
        raise ModelError(f"labels and guidance are for {', '.join(NETWORKS)}; {name!r} takes neither, leave them out")
    if name in MODELS:
        from geosprint.models.exact import MAKERS

        return MAKERS[name]()
    if ":" in name:
        from geosprint.models.wrappers import check_model

        return check_model(made_by(name, "a model"), f"{name}()")
    if "/" in name or os.sep in name:
        raise ModelError(
            f"there is no directory {name!r}; a model may be a directory that holds a diffusers pipeline "
            "(model_index.json) or a network that was trained here (card.json)"
        )
    near = "".join(f"; did you mean {one}?" for one in get_close_matches(name, models_in_the_box(), 1))
    raise ModelError(
        f"there is no model {name!r}{near or ';'} the models in the box are {', '.join(models_in_the_box())}, "
        "a trained one is the directory that holds its card.json, and your own is package.module:factory"
    )


def made_by(spec: str, product: str) -> Any:
    """What the factory `package.module:factory` returns; importing it runs its code."""
    module_name, _, factory_name = spec.rpartition(":")
    if "/" in module_name or os.sep in module_name or module_name.endswith(".py"):
        raise ModelError(
            f"{spec!r} names a file, and a factory is named by its module: "
            f"{Path(module_name).stem}:{factory_name}, from the directory that holds it"
        )
    if os.getcwd() not in sys.path:  # an installed command does not look in the current directory by itself
        sys.path.insert(0, os.getcwd())
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (Exception, SystemExit) as wrong:  # importing runs the user's code, which may fail in any way
        raise ModelError(
            f"cannot get the factory {factory_name!r} from module {module_name!r}: {type(wrong).__name__}: {wrong}"
        ) from wrong
    if not callable(factory):
        raise ModelError(
            f"{spec} must be a function without arguments that returns {product}, got {type(factory).__name__}"
        )
    try:
        return factory()
    except (Exception, SystemExit) as wrong:  # the user's code may fail in any way; say where
        raise ModelError(f"{spec}() failed: {type(wrong).__name__}: {wrong}") from wrong
