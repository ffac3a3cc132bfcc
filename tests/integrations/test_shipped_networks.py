"""The shipped networks as diffusers pipelines, through the same road."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from diffusers import (
    DDIMScheduler,
    DiffusionPipeline,
    FlowMatchEulerDiscreteScheduler,
    ImagePipelineOutput,
    UNet2DModel,
)
from diffusers.utils.torch_utils import randn_tensor

import geosprint
from geosprint.models import ASSETS
from geosprint.models.networks import WEIGHTS, read_card, read_weights
from recipes.networks.recipe import RECIPES


class PlainPipeline(DiffusionPipeline):
    """What a user writes for a network of their own: labels if it takes them, any scheduler."""

    def __init__(self, unet, scheduler):
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)

    @torch.no_grad()
    def __call__(self, batch_size=1, generator=None, num_inference_steps=50, output_type="np"):
        config = self.unet.config
        x = randn_tensor((batch_size, config.in_channels, config.sample_size, config.sample_size), generator=generator)
        labels = None if config.num_class_embeds is None else torch.full((batch_size,), 3)
        self.scheduler.set_timesteps(num_inference_steps)
        for t in self.scheduler.timesteps:
            x = self.scheduler.step(self.unet(x, t, class_labels=labels).sample, t, x, return_dict=False)[0]
        return ImagePipelineOutput(x.numpy())


def pipeline_of(name):
    recipe = RECIPES[name]
    unet = UNet2DModel(**recipe.network).eval()
    unet.load_state_dict(read_weights(ASSETS / name / WEIGHTS, read_card(ASSETS / name).sha256))
    flows = isinstance(recipe.noise, geosprint.Flow)
    return PlainPipeline(unet, FlowMatchEulerDiscreteScheduler() if flows else DDIMScheduler())


@pytest.mark.parametrize("name", RECIPES)
def test_a_shipped_network_goes_from_recording_to_the_same_images_after_reload(name, tmp_path):
    pipe = pipeline_of(name)
    profile = geosprint.extract(pipe, trajectories=2, reference_steps=8)
    assert profile.origin.prediction == RECIPES[name].prediction
    assert profile.nfe == 16
    schedule = geosprint.build_schedule(profile, 4)
    geosprint.apply(pipe, schedule)
    images = pipe(generator=torch.Generator().manual_seed(1), num_inference_steps=4).images
    assert np.isfinite(images).all()
    np.testing.assert_allclose(pipe.scheduler.timesteps.numpy(), schedule.timesteps, rtol=1e-6)
    pipe.save_pretrained(tmp_path)
    again = PlainPipeline.from_pretrained(tmp_path)
    same = again(generator=torch.Generator().manual_seed(1), num_inference_steps=4).images
    np.testing.assert_allclose(same, images, atol=1e-4)
