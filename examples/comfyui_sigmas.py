"""The line of sigmas that a ManualSigmas node of ComfyUI takes, for every number of steps you may want.

python examples/comfyui_sigmas.py PROFILE.json STEPS [STEPS ...]

PROFILE.json is what `geosprint extract MODEL -o PROFILE.json` wrote; one profile serves every number.
"""

import sys
from pathlib import Path

import geosprint


def sigma_lines(profile: geosprint.CurvatureProfile, numbers: list[int]) -> dict[int, str]:
    """A line for each number of steps, from noise to 0."""
    return {steps: geosprint.export(geosprint.build_schedule(profile, steps), "comfyui") for steps in numbers}


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    profile = geosprint.CurvatureProfile.load(Path(path))
    for steps, line in sigma_lines(profile, [int(number) for number in numbers]).items():
        print(f"{steps} steps: {line.strip()}")
