"""Tune the steps of a diffusers pipeline, put them into it and save it.

python examples/tune_a_pipeline.py PIPELINE PROMPTS.txt OUT [STEPS]

PIPELINE is a directory or a hub id, PROMPTS.txt has a prompt per line, OUT is a new directory. Afterwards
`geosprint.load_pipeline(OUT)` draws with the tuned steps when it is asked for STEPS of them.
"""

import sys
from pathlib import Path

import torch
from diffusers import DPMSolverMultistepScheduler

import geosprint

BUDGET = 4000  # network calls that the search may make; guidance counts two


def tune_and_save(place: str, prompts: tuple[str, ...], out: str, steps: int, budget: int = BUDGET) -> None:
    """The whole job: load, tune, apply, save."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipe = geosprint.load_pipeline(place, dtype="float16" if device == "cuda" else "float32", device=device)
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)  # a schedule is made for a solver
    inputs = geosprint.PipelineInputs(prompts)
    tuned = geosprint.tune(pipe, steps, solver="dpmpp-2m", budget_nfe=budget, inputs=inputs)
    print(tuned.headline)
    geosprint.apply(pipe, tuned.schedule)
    pipe.save_pretrained(out)
    print(f"{out} steps at {tuned.schedule.timesteps}")


if __name__ == "__main__":
    place, prompt_file, out, *steps = sys.argv[1:]
    lines = Path(prompt_file).read_text(encoding="utf-8").splitlines()
    tune_and_save(place, tuple(filter(None, lines)), out, int(steps[0]) if steps else 8)
