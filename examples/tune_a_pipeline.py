"""Find the fewest steps that are as good as what a diffusers pipeline runs today, and save the pipeline with them.

python examples/tune_a_pipeline.py PIPELINE PROMPTS.txt OUT [BUDGET]

PIPELINE is a directory or a hub id, PROMPTS.txt has one prompt per line, OUT is a new directory, and BUDGET is how many
network calls the tuning may cost; guidance counts two. Load the result with `geosprint.load_pipeline(OUT)`, and call it
with the `num_inference_steps` that this prints.
"""

import sys
from pathlib import Path

import geosprint

BUDGET = 4000


def tune_and_save(name: str, prompts: list[str], out: str, budget_nfe: int = BUDGET) -> geosprint.Tuned:
    """Load, tune, apply, save."""
    pipe = geosprint.load_pipeline(name)
    tuned = geosprint.tune(pipe, prompts=prompts, budget_nfe=budget_nfe)
    geosprint.apply(pipe, tuned)
    pipe.save_pretrained(out)
    proof = "not worse with 95 % confidence" if tuned.proved else "not proved to be as good: allow a larger budget"
    print(f"num_inference_steps={tuned.steps[0]} instead of {tuned.today}, {proof}")
    return tuned


if __name__ == "__main__":
    name, prompt_file, out, *budget = sys.argv[1:]
    lines = Path(prompt_file).read_text(encoding="utf-8").splitlines()
    tune_and_save(name, list(filter(None, lines)), out, int(budget[0]) if budget else BUDGET)
