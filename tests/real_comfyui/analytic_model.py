"""A ComfyUI custom node for tests: an exact denoiser of a mixture of Gaussians as MODEL, and two CONDITIONINGs."""

import comfy.model_base
import comfy.model_management
import comfy.model_patcher
import comfy.supported_models_base
import torch

SHAPE, MODES, CONDITIONAL, DEVIATION = (4, 8, 8), 8, 4, 0.6


def means() -> torch.Tensor:
    """The modes, the same wherever this runs."""
    return 0.2 * torch.randn(MODES, *SHAPE, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class ExactNetwork(torch.nn.Module):
    """What a network of this kind would predict if it were perfect: eps, or the velocity of a flow."""

    dtype = torch.float32

    def __init__(self, is_flow: bool, sampling: torch.nn.Module) -> None:
        super().__init__()
        self.is_flow, self.sampling = is_flow, sampling
        self.nothing = torch.nn.Parameter(torch.zeros(1))  # ComfyUI looks for the weights' device

    def forward(self, x: torch.Tensor, t: torch.Tensor, context: torch.Tensor, **_: object) -> torch.Tensor:
        """x is a·x0 + s·eps; the positive context speaks of the first modes alone."""
        if self.is_flow:
            s = t[0].double() / 1000
            a = 1 - s
        else:
            sigma = self.sampling.sigmas[t[0].long()].double()
            a, s = (1 + sigma**2) ** -0.5, sigma * (1 + sigma**2) ** -0.5
        x = x.double()
        spread = (a * DEVIATION) ** 2 + s**2
        apart = (x[:, None] - a * means()[None]).flatten(2).square().sum(dim=2)
        meant = (context.mean(dim=(1, 2)) < 0.5)[:, None] | (torch.arange(MODES) < CONDITIONAL)
        shares = torch.softmax(torch.where(meant, -apart / (2 * spread), -torch.inf), dim=1)
        mode = torch.einsum("bm,m...->b...", shares, means())
        x0 = mode + a * DEVIATION**2 / spread * (x - a * mode)
        return ((x - x0) / s if self.is_flow else (x - a * x0) / s).float()


class AnalyticModel:
    """The node."""

    CATEGORY, FUNCTION, RETURN_TYPES = "testing", "model", ("MODEL", "CONDITIONING", "CONDITIONING")

    @classmethod
    def INPUT_TYPES(cls) -> dict:
        """Which kind of model."""
        return {"required": {"kind": (["vp", "flow"],)}}

    def model(self, kind: str) -> tuple:
        """As a checkpoint loader would make it."""
        config = comfy.supported_models_base.BASE({"disable_unet_model_creation": True})
        types = comfy.model_base.ModelType
        model = comfy.model_base.BaseModel(config, types.FLOW if kind == "flow" else types.EPS)
        model.diffusion_model = ExactNetwork(kind == "flow", model.model_sampling)
        cpu = comfy.model_management.get_torch_device()
        positive, negative = ([[torch.full((1, 1, 8), value), {}]] for value in (1.0, 0.0))
        return comfy.model_patcher.ModelPatcher(model, cpu, cpu), positive, negative


NODE_CLASS_MAPPINGS = {"AnalyticModel": AnalyticModel}
