"""ComfyUI custom node: a GeoSPRINT schedule file as SIGMAS. Copy this file into ComfyUI/custom_nodes.

It needs nothing but what ComfyUI has; geosprint itself need not be installed there.
"""

import json

import torch


class GeoSprintSigmas:
    """Reads the sigmas of a schedule.json made by `geosprint schedule`."""

    CATEGORY = "sampling/custom_sampling/schedulers"
    FUNCTION = "sigmas"
    RETURN_TYPES = ("SIGMAS",)

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        return {"required": {"schedule": ("STRING", {"default": "schedule.json"})}}

    def sigmas(self, schedule: str) -> tuple[torch.Tensor]:
        with open(schedule, encoding="utf-8") as file:
            content = json.load(file)
        if content.get("format") != "geosprint-schedule":
            raise ValueError(
                f"{schedule} must be a geosprint-schedule file, but its format is {content.get('format')!r}"
            )
        return (torch.tensor(content["sigmas"], dtype=torch.float32),)


NODE_CLASS_MAPPINGS = {"GeoSprintSigmas": GeoSprintSigmas}
NODE_DISPLAY_NAME_MAPPINGS = {"GeoSprintSigmas": "GeoSPRINT sigmas"}
