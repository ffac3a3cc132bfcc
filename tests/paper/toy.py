"""A setting small enough for tests."""

from geosprint.paper.base import Setting

TOY = Setting("mixture", (4, 8), trajectories=8, reference_steps=30, samples=16, repetitions=2, fine_steps=20)
