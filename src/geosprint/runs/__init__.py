"""Long work: what is kept on disk, how processes share it, how far it is."""

BATCH = 8
"""Samples that go through the model together, at most; it stands here because help must not wait for torch."""
