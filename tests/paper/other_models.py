"""Models for experiments, made by name."""

from geosprint.models.exact import ring
from geosprint.noise import Flow


def flow_ring():
    return ring(noise=Flow())
