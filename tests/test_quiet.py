"""Verbs show what they do and nothing else: no warning of any library reaches the user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, warnings
from geosprint.cli import main
for line in sys.stdin:
    print("#", line.strip(), file=sys.stderr, flush=True)
    sys.argv = ["geosprint", *line.split()]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise
"""
SMALL = "--trajectories 2 --reference-steps 12"
TOY = f"""
doctor
models
extract digits {SMALL} -o profile.json
inspect profile.json -o profile.png
schedule profile.json --steps 4 -o schedule.json
budget profile.json --target-score 0.05 -o budget.json
export schedule.json --to diffusers
sample digits --schedule schedule.json -n 2 -o samples.png
sample fashion --steps 2 -n 1 --label 3 --guidance 2 -o boots.png
compare digits --quick --steps 3 -n 10 {SMALL} --fine-steps 8 --methods uniform-trailing,geosprint -o compared
tune mixture --steps 3,4 --budget-nfe 2500 -o tuned.json
inspect tuned.json
export tuned.json --to json --steps 4 -o steps.json
fit mixture --steps 3 --budget-nfe 2500 -o fitted.json
sample mixture --schedule fitted.json -n 2 -o points.png
report compared -o report.html
reproduce --list
"""
PIPELINE = f"""
extract ./pipe {SMALL} --prompts prompts.txt --guidance-scale 5 -o profile.json
schedule profile.json --steps 4 -o schedule.json
sample ./pipe --schedule schedule.json --prompts prompts.txt --guidance-scale 5 -n 2 -o samples.png
tune ./pipe --steps 3 --prompts prompts.txt --guidance-scale 5 --budget-nfe 2500 -o tuned.json
compare ./pipe --quick --steps 2 -n 10 {SMALL} --fine-steps 3 --methods uniform-trailing --prompts prompts.txt -o new
"""
PROGRESS = re.compile(
    r"^(#.*|\s*|.*\d+%\|.*\|.*|.*[\d,]+ of [\d,]+ (samples|calls|steps)\b.*|at most .* network calls, about .*)$"
)


def stderr_of(lines: str, cwd: Path) -> list[str]:
    """What all these verbs say beside their results, one after another in one process, with Python's own filters."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=lines.strip(),
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HOME": str(cwd)},
    )
    assert done.returncode == 0, done.stderr
    return re.split(r"[\r\n]+", done.stderr)


@pytest.mark.slow
def test_verbs_on_models_in_the_box_are_quiet(tmp_path):
    assert [line for line in stderr_of(TOY, tmp_path) if not PROGRESS.match(line)] == []


@pytest.mark.slow
def test_verbs_on_a_pipeline_are_quiet(tmp_path):
    from integrations import tiny_pipelines

    tiny_pipelines.sd15().save_pretrained(tmp_path / "pipe")
    (tmp_path / "prompts.txt").write_text("a red cat\nthe old boat\n")
    assert [line for line in stderr_of(PIPELINE, tmp_path) if not PROGRESS.match(line)] == []


def test_a_warning_is_seen_by_this_test(tmp_path):
    (tmp_path / "loud.py").write_text("import warnings\nwarnings.warn('look here', stacklevel=2)\n")
    told = subprocess.run([sys.executable, "loud.py"], cwd=tmp_path, capture_output=True, text=True).stderr
    assert not PROGRESS.match(told.splitlines()[0])
