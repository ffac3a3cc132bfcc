"""What can be sampled: the interface, exact models, networks and pipelines in the box."""

from pathlib import Path

ASSETS = Path(__file__).parent / "assets"
"""Weights and cards of what is in the box."""
