"""What a claim is judged to be from made-up numbers."""

from __future__ import annotations

from toy import TOY

from geosprint.paper.base import PaperFinding


def word(experiment, text, numbers, rows=()):
    """The verdict on the claim of this experiment whose text holds these words."""
    (claim,) = [claim for said, claim in experiment.claims.items() if text in said]
    return claim.judge({"toy": PaperFinding(experiment.name, TOY, list(rows), numbers, "")})[0]


def difference(low, high):
    return {"value": (low + high) / 2, "low": low, "high": high}


def numbers_of(name, value, low, high):
    return {name: value, f"{name}_low": low, f"{name}_high": high}
