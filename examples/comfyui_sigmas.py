"""Print the sigmas for a ManualSigmas node of ComfyUI, for any numbers of steps.

python examples/comfyui_sigmas.py PROFILE.json STEPS [STEPS ...]

PROFILE.json comes from `geosprint extract MODEL -o PROFILE.json`; one profile serves every number of steps.
"""

import sys
from pathlib import Path

import geosprint


def sigma_lines(profile: geosprint.CurvatureProfile, numbers: list[int]) -> dict[int, str]:
    """One line for each number of steps, from noise to 0."""
    return {steps: geosprint.export(geosprint.build_schedule(profile, steps), "comfyui") for steps in numbers}


if __name__ == "__main__":
    path, *numbers = sys.argv[1:]
    profile = geosprint.CurvatureProfile.load(Path(path))
    for steps, line in sigma_lines(profile, [int(number) for number in numbers]).items():
        print(f"{steps} steps: {line.strip()}")
