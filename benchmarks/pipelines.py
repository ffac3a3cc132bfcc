"""The table of docs/pipelines.md: every family of pipelines that can be built offline, and what works with it.

    python -m benchmarks.pipelines          try all families, in a quarter of an hour, and write the table
    python -m benchmarks.pipelines NAME...  try these first

Networks are tiny and have random weights: the table says what runs and has an effect, not how much it gains. What a
family did is kept in out/pipelines and not tried again; remove that directory after a change.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integrations"))

import diffusers  # noqa: E402
import numpy as np  # noqa: E402
import tiny_families as families  # noqa: E402
import torch  # noqa: E402

import geosprint  # noqa: E402
from geosprint.errors import GeoSprintError  # noqa: E402

PAGE = ROOT / "docs" / "pipelines.md"
BEGIN, END = "<!-- made by `make pipelines` -->\n", "<!-- end -->\n"
COLUMNS = ("extract", "apply", "tune", "fit", "save and reload", "strength")
STEPS = 4
YES, NOTHING, TRACEBACK = "yes", "silently nothing", "traceback"


def drawn(pipe: Any, family: families.Family, **more: Any) -> Any:
    """Latents, or pixels where there are none, of one run from one seed."""
    pipe.set_progress_bar_config(disable=True)
    torch.manual_seed(0)
    named = {"output_type": "latent"} if family.prompts else {"output_type": "np"}
    given = families.inputs_of(family, num_inference_steps=STEPS, generator=torch.Generator().manual_seed(3))
    whole = {"strength": 1.0} if family.image_to_image else {}
    return np.asarray(pipe(**{**given, **whole, **named, **more})[0])


class FamilyChecks:
    """One family, tried from recording to reload."""

    def __init__(self, name: str) -> None:
        self.family = families.FAMILIES[name]
        self.inputs = geosprint.PipelineInputs(self.family.prompts[:1], **self.family.size, call=self.family.call)
        self.made: Any = None

    def extract(self) -> str:
        settings = {"trajectories": 2, "reference_steps": 6, "batch": self.family.batch}
        self.made = geosprint.extract(self.family.build(), **settings, inputs=self.inputs)
        return YES

    def apply(self) -> str:
        """The steps must be the profile's, and the picture another one than stock draws."""
        pipe = self.family.build()
        stock = drawn(pipe, self.family)
        geosprint.apply(pipe, self.made)
        found = drawn(pipe, self.family)
        sigmas, expected = self.sigmas(pipe), geosprint.build_schedule(self.made, STEPS).sigmas[:STEPS]
        return YES if np.allclose(sigmas, expected, rtol=1e-3) and not np.allclose(found, stock) else NOTHING

    def sigmas(self, pipe: Any) -> Any:
        """Those of the steps that were walked."""
        scheduler = pipe.scheduler
        if hasattr(scheduler, "sigmas") and len(scheduler.sigmas) > STEPS:
            listed = scheduler.sigmas[:-1].double().cpu().numpy()
            return listed if len(listed) == STEPS else np.append(listed[:1], listed[1::2])  # Heun doubles
        alphas = scheduler.alphas_cumprod.double()[scheduler.timesteps.long()].clamp_min(2**-24)
        return torch.sqrt((1 - alphas) / alphas).numpy()

    def tune(self) -> str:
        settings = {
            "budget_nfe": self.family.budget_nfe,
            "batch": self.family.batch,
            "progress": False,
            "today": self.family.today,
        }
        geosprint.tune(self.family.build(), steps=STEPS, inputs=self.inputs, **settings)
        return YES

    def fit(self) -> str:
        settings = {
            "budget_nfe": self.family.budget_nfe,
            "batch": self.family.batch,
            "progress": False,
            "today": self.family.today,
        }
        self.made = geosprint.fit(self.family.build(), STEPS, inputs=self.inputs, **settings)
        return YES

    def reload(self) -> str:
        """What was made last, saved and loaded again, draws the same."""
        pipe = geosprint.apply(self.family.build(), self.made)
        before = drawn(pipe, self.family)
        with tempfile.TemporaryDirectory() as directory:
            pipe.save_pretrained(directory)
            again = geosprint.load_pipeline(directory)
            if "use_framewise_encoding" in vars(getattr(pipe, "vae", None) or pipe):
                again.vae.use_framewise_encoding = again.vae.use_framewise_decoding = False
            after = drawn(again, self.family)
        return YES if np.allclose(before, after, atol=1e-4) else "draws something else"

    def strength(self) -> str:
        """Image to image walks that share of the steps."""
        if not self.family.image_to_image:
            return "–"
        pipe, walked = geosprint.apply(self.family.build(), self.made), []
        step = pipe.scheduler.step
        pipe.scheduler.step = lambda *given, **named: walked.append(given[1]) or step(*given, **named)
        found = drawn(pipe, self.family, strength=0.5)
        return YES if len(walked) == STEPS // 2 and np.isfinite(found).all() else NOTHING

    def cells(self) -> dict[str, str]:
        """What each column says; after a refusal, later columns go on with what there is."""
        steps: tuple[Callable[[], str], ...] = (
            self.extract, self.apply, self.tune, self.fit, self.reload, self.strength
        )  # fmt: skip
        said = {}
        for column, step in zip(COLUMNS, steps, strict=True):
            if self.made is None and column in ("apply", "save and reload", "strength"):
                said[column] = said["extract"]
                continue
            try:
                said[column] = step()
            except GeoSprintError as wrong:
                said[column] = f"no: {wrong}"
            except Exception:
                traceback.print_exc()
                said[column] = TRACEBACK
        return said


def kept_of(name: str) -> Path:
    return ROOT / "out" / "pipelines" / f"{name}.json"


def tried(name: str) -> dict[str, str]:
    kept = kept_of(name)
    if not kept.exists():
        cells = FamilyChecks(name).cells()
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(cells))
    return json.loads(kept.read_text())


def table(rows: dict[str, dict[str, str]]) -> str:
    """Refusals are told below, each once."""
    reasons: list[str] = []

    def cell(said: str) -> str:
        if not said.startswith("no: "):
            return said
        if said not in reasons:
            reasons.append(said)
        return f"no ({reasons.index(said) + 1})"

    versions = ", ".join(f"{name} {version(name)}" for name in ("diffusers", "transformers", "torch"))
    lines = [
        f"`make pipelines` on {date.today().isoformat()} with {versions}. Networks are tiny and have random weights.\n",
        "| pipeline | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 1) + "|",
        *(f"| {name} | " + " | ".join(cell(said[column]) for column in COLUMNS) + " |" for name, said in rows.items()),
        "",
        *(f"{i}. {reason.removeprefix('no: ')}." for i, reason in enumerate(reasons, 1)),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    warnings.simplefilter("ignore")
    diffusers.utils.logging.set_verbosity_error()
    diffusers.utils.logging.disable_progress_bar()
    rows = {}
    for name in sys.argv[1:] or families.FAMILIES:
        rows[name] = tried(name)
        print(f"{name}: {', '.join(f'{column} {said}' for column, said in rows[name].items())}", flush=True)
    known = {name: tried(name) for name in families.FAMILIES if kept_of(name).exists()}
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(known)}\n{END}{after}", encoding="utf-8")
    if any(said in (NOTHING, TRACEBACK) for row in rows.values() for said in row.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
