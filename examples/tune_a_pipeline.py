"""Tune a schedule for a diffusers pipeline, apply it and save the pipeline.

python examples/tune_a_pipeline.py PIPELINE PROMPTS.txt OUT [STEPS]

PIPELINE is a directory or a hub id, PROMPTS.txt has one prompt per line, OUT is a new directory. Load the result with
`geosprint.load_pipeline(OUT)`; it takes the tuned steps when you call it with `num_inference_steps=STEPS`.
"""

import sys
from pathlib import Path

import torch
from diffusers import DPMSolverMultistepScheduler

import geosprint

BUDGET = 4000  # network calls for the whole tuning; guidance counts two


def tune_and_save(name: str, prompts: tuple[str, ...], out: str, steps: int, budget_nfe: int = BUDGET) -> None:
    """Load, tune, apply, save."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    pipe = geosprint.load_pipeline(name, dtype="float16" if device == "cuda" else "float32", device=device)
    pipe.scheduler = DPMSolverMultistepScheduler.from_config(pipe.scheduler.config)  # a schedule is tuned for a solver
    inputs = geosprint.PipelineInputs(prompts)
    tuned = geosprint.tune(pipe, steps, solver="dpmpp-2m", budget_nfe=budget_nfe, inputs=inputs)
    print(tuned.headline)
    geosprint.apply(pipe, tuned)
    pipe.save_pretrained(out)
    print(f"{out} steps at {tuned[steps].timesteps}")


if __name__ == "__main__":
    name, prompt_file, out, *steps = sys.argv[1:]
    lines = Path(prompt_file).read_text(encoding="utf-8").splitlines()
    tune_and_save(name, tuple(filter(None, lines)), out, int(steps[0]) if steps else 8)
