"""ComfyUI custom node: a GeoSPRINT schedule file as SIGMAS. Copy this file into ComfyUI/custom_nodes.

It needs nothing but what ComfyUI has; geosprint itself need not be installed there.
"""

import json
import os

import torch


class GeoSprintSigmas:
    """Reads the sigmas of a schedule.json made by `geosprint schedule` or `geosprint export --to json`."""

    CATEGORY = "sampling/custom_sampling/schedulers"
    FUNCTION = "sigmas"
    RETURN_TYPES = ("SIGMAS",)

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        """The one field of the node: the path of the file."""
        return {"required": {"schedule": ("STRING", {"default": "schedule.json"})}}

    @classmethod
    def IS_CHANGED(cls, schedule: str) -> float:
        """A file that was written anew is read anew."""
        return os.path.getmtime(schedule)

    def sigmas(self, schedule: str) -> tuple[torch.Tensor]:
        """K + 1 sigmas, the last one 0."""
        with open(schedule, encoding="utf-8") as file:
            content = json.load(file)
        sigmas = content.get("sigmas") if isinstance(content, dict) else None
        if not isinstance(sigmas, list) or len(sigmas) < 2 or sigmas[-1] != 0:
            raise ValueError(f"{schedule} must hold a list of sigmas that ends with 0; is it a geosprint schedule?")
        return (torch.tensor(sigmas, dtype=torch.float32),)


NODE_CLASS_MAPPINGS = {"GeoSprintSigmas": GeoSprintSigmas}
NODE_DISPLAY_NAME_MAPPINGS = {"GeoSprintSigmas": "GeoSPRINT sigmas"}
