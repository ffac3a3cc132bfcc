"""The node GeoSPRINT steps: files of `geosprint tune`, `fit` and `schedule` as what SamplerCustom takes.

It needs nothing but what ComfyUI has; geosprint itself need not be installed there.
"""

import os
from typing import Any

import folder_paths

from .steps import sampler_and_sigmas

try:
    from comfy_api.latest import ComfyExtension, io
except ImportError:  # an older ComfyUI, whose nodes are plain classes
    io = None

NODE_ID, NAME, CATEGORY = "GeoSprintSteps", "GeoSPRINT steps", "sampling/custom_sampling"
FOLDER = "geosprint"
DESCRIPTION = (
    "Where and how to step, as tuned for a model. Connect both outputs to SamplerCustom; its latent should be empty."
)
FILE_TIP = "Made by `geosprint tune`, `fit` or `schedule`. It lies in models/geosprint or in the input folder."
STEPS_TIP = "Which number of steps of the file; 0: the proved or the only one."

folder_paths.add_model_folder_path(FOLDER, os.path.join(folder_paths.models_dir, FOLDER))
folder_paths.add_model_folder_path(FOLDER, folder_paths.get_input_directory())
folder_paths.folder_names_and_paths[FOLDER] = (folder_paths.get_folder_paths(FOLDER), {".json"})


def path_of(file: str) -> str:
    """The path of a file that the picker listed, if it is still there."""
    path = folder_paths.get_full_path(FOLDER, file)
    if path is None:
        folders = " or ".join(folder_paths.get_folder_paths(FOLDER))
        raise ValueError(f"there is no {file} in {folders}: put the file that `geosprint tune` wrote there, and reload")
    return path


if io is not None:

    class GeoSprintSteps(io.ComfyNode):
        """Reads a file, picked from ComfyUI's own folders."""

        @classmethod
        def define_schema(cls) -> Any:
            """Which file, and which of its numbers of steps; out come a sampler and its sigmas."""
            files = folder_paths.get_filename_list(FOLDER)
            return io.Schema(
                node_id=NODE_ID,
                display_name=NAME,
                category=CATEGORY,
                description=DESCRIPTION,
                inputs=[
                    io.Combo.Input("file", options=files, tooltip=FILE_TIP),
                    io.Int.Input("steps", default=0, min=0, max=1000, tooltip=STEPS_TIP),
                ],
                outputs=[io.Sampler.Output(), io.Sigmas.Output()],
            )

        @classmethod
        def fingerprint_inputs(cls, file: str, steps: int) -> float:
            """A file that was written anew is read anew."""
            return os.path.getmtime(path_of(file))

        @classmethod
        def execute(cls, file: str, steps: int) -> Any:
            """The sampler and the sigmas."""
            return io.NodeOutput(*sampler_and_sigmas(path_of(file), steps))

    class GeoSprintExtension(ComfyExtension):
        """What ComfyUI asks for the nodes."""

        async def get_node_list(self) -> list:
            """One node."""
            return [GeoSprintSteps]

    async def comfy_entrypoint() -> "GeoSprintExtension":
        """Called by ComfyUI."""
        return GeoSprintExtension()

else:

    class GeoSprintSteps:  # type: ignore[no-redef]
        """The same node for an older ComfyUI."""

        CATEGORY, DESCRIPTION, FUNCTION = CATEGORY, DESCRIPTION, "execute"
        RETURN_TYPES = ("SAMPLER", "SIGMAS")

        @classmethod
        def INPUT_TYPES(cls) -> dict:
            """Which file, and which of its numbers of steps."""
            steps = {"default": 0, "min": 0, "max": 1000, "tooltip": STEPS_TIP}
            files = folder_paths.get_filename_list(FOLDER)
            return {"required": {"file": (files, {"tooltip": FILE_TIP}), "steps": ("INT", steps)}}

        @classmethod
        def IS_CHANGED(cls, file: str, steps: int) -> float:
            """A file that was written anew is read anew."""
            return os.path.getmtime(path_of(file))

        def execute(self, file: str, steps: int) -> tuple:
            """The sampler and the sigmas."""
            return sampler_and_sigmas(path_of(file), steps)

    NODE_CLASS_MAPPINGS = {NODE_ID: GeoSprintSteps}
    NODE_DISPLAY_NAME_MAPPINGS = {NODE_ID: NAME}
