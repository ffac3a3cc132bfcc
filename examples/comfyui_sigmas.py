"""Print the sigmas for a ManualSigmas node of ComfyUI, for each number of steps in a tuned file.

python examples/comfyui_sigmas.py TUNED.json

TUNED.json comes from `geosprint tune MODEL --solver dpmpp-2m --steps 8,12 -o TUNED.json`; the sampler is that solver.
For a file that also says how to step, take the node of docs/comfyui.md.
"""

import sys

import geosprint


def sigma_lines(tuned: geosprint.Tuned) -> dict[int, str]:
    """One line for each number of steps, from noise to 0."""
    return {one.steps: geosprint.export(one.schedule, "comfyui").strip() for one in tuned.results}


if __name__ == "__main__":
    tuned = geosprint.Tuned.load(sys.argv[1])
    for steps, line in sigma_lines(tuned).items():
        print(f"{steps} steps of {tuned.result(steps).solver}: {line}")
