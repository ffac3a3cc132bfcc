from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from toy import TOY

from geosprint.errors import FileError
from geosprint.estimates import Estimate
from geosprint.paper.base import PRESETS, PaperFinding
from geosprint.paper.claims import (
    FAILS,
    HOLDS,
    IN_PART,
    MINIATURE,
    UNTESTED,
    above,
    at_most,
    below,
    exactly,
    ledger,
    not_above,
    not_below,
    untested,
    verdict_of,
)
from geosprint.paper.registry import CLAIMS, EXPERIMENTS, keep, read_findings, recall

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "reproduce"


@pytest.mark.parametrize(
    ("claim", "found", "agreement"),
    [
        (above("it"), (2, 1, 3), 1),  # a direction alone: the interval decides
        (above("it"), (2, -1, 5), 0),
        (above("it"), (-2, -3, -1), 0),
        (below("it"), (-2, -3, -1), 1),
        (below("it"), (-2, -3, 0), 0),  # an interval that touches no effect shows none
        (above("it", 1, 450), (450, 400, 500), 1),
        (above("it", 1, 450), (1898, 1768, 2040), 1),  # better than claimed, in the direction the paper argues
        (above("it", 1, 450), (428, 400, 440), 1),  # 5 % are granted
        (above("it", 1, 450), (427, 400, 440), 0.5),
        (above("it", 1, 450), (225, 200, 250), 0.5),  # half of it
        (above("it", 1, 450), (224, 200, 250), 0),
        (above("it", 1, 450), (450, 0.9, 900), 0),  # as large as claimed, and chance explains it
        (at_most("it", 40), (7.5, 7.5, 7.5), 1),
        (at_most("it", 40), (42, 42, 42), 1),
        (at_most("it", 40), (43, 43, 43), 0.5),
        (at_most("it", 40), (80, 80, 80), 0.5),
        (at_most("it", 40), (81, 81, 81), 0),
        (below("it", 1, 0.37), (0.2, 0.1, 0.3), 1),
        (below("it", 1, 0.37), (0.49, 0.48, 0.5), 0.5),
        (below("it", 1, 0.37), (0.37, 0.1, 1.1), 0),
        (below("it", 1, 0.02), (0.0, 0.0, 0.0), 1),
        (not_above("it"), (1, -1, 3), 1),  # no effect is claimed, and none is shown
        (not_above("it"), (-5, -6, -4), 1),
        (not_above("it"), (2, 1, 3), 0),
        (not_below("it", 1), (0.9, 0.8, 0.95), 0),
        (not_below("it", 1), (0.9, 0.8, 1.0), 1),
    ],
)
def test_a_comparison_agrees_by_its_interval_and_by_its_size(claim, found, agreement):
    assert claim.agreement(Estimate(*found)) == agreement


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_larger_is_better_above_and_worse_below(claimed, value):
    """Directions are mirror images: a value above agrees as its inverse does below."""
    up, down = (
        above("it", 0, claimed).agreement(exactly(value)),
        at_most("it", 1 / claimed).agreement(exactly(1 / value)),
    )
    assert up == down or math.isclose(value, 0.95 * claimed) or math.isclose(value, 0.5 * claimed)
    assert above("it", 0, claimed).agreement(exactly(2 * value)) >= up


@pytest.mark.parametrize(
    ("agreements", "word"),
    [
        ([1, 1], HOLDS),
        ([1, 0.5], IN_PART),
        ([1, 0], IN_PART),
        ([0.5], IN_PART),
        ([0, 0], FAILS),
        ([1, 0, 0, 0], IN_PART),  # a quarter
        ([1, 0, 0, 0, 0], FAILS),  # fewer
        ([0.5, 0, 0, 0], IN_PART),
    ],
)
def test_a_claim_holds_only_if_every_comparison_agrees(agreements, word):
    assert verdict_of(agreements) == word


def claim_on(values):
    """A claim about numbers of the finding that must be above zero."""
    return above("it", of=lambda found: {k: exactly(v) for k, v in found.numbers[values].items()})


def finding(**numbers):
    return PaperFinding("where", TOY, [{"a": 1}], numbers, "so it is")


def test_comparisons_of_all_models_are_judged_together_and_said_by_model():
    word, measured = claim_on("a").judge({"one": finding(a={"": 1.0}), "two": finding(a={"k": -1.0})})
    assert (word, measured) == (IN_PART, {"one": "1", "two": "k: -1"})
    many = {str(i): 1.0 if i else -1.0 for i in range(5)}
    assert claim_on("a").judge({"one": finding(a=many)})[1] == {"one": "4 of 5 comparisons agree, 1 to the contrary"}


def test_a_model_that_a_claim_does_not_speak_of_is_left_out():
    found = {"one": finding(a={}), "two": finding(a={"": 2.0})}
    assert claim_on("a").judge(found) == (HOLDS, {"two": "2"})
    assert claim_on("a").judge({"one": finding(a={})}) == (UNTESTED, {})


def test_what_cannot_be_tested_says_what_it_would_take():
    far = untested("a telescope")
    assert far.judge({"one": finding()}) == (UNTESTED, {})
    claims = {"the moon is made of cheese (1)": ("where", far), "x": ("where", claim_on("a"))}
    page = ledger(claims, {"where": {"mixture": finding(a={"": 2.0})}})
    assert "| 1 | the moon is made of cheese (1) | – | a telescope | **not testable here** |" in page
    assert "| 2 | x | `geosprint reproduce where --quick` | it. mixture: 2 | **holds** |" in page
    assert page.endswith("Of the paper's 2 claims: 1 holds, 0 holds in part, 0 does not hold, 1 not testable here.\n")
    assert "no finding bears on it" in ledger({"x": ("where", claim_on("a"))}, {})
    assert "Of the paper's 0 claims" in ledger({"our question: x": ("where", claim_on("a"))}, {})


def test_every_claim_goes_through_the_rule_or_says_what_a_test_would_take():
    assert len(CLAIMS) == sum(len(experiment.claims) for experiment in EXPERIMENTS.values())
    for text, (experiment, claim) in CLAIMS.items():
        assert experiment in EXPERIMENTS
        tested = claim.of is not None and claim.quantity
        in_miniature = "Stable Diffusion 1.5" in text
        assert (bool(tested) != bool(claim.needs)) != in_miniature, text
    assert all(experiment.claims for experiment in EXPERIMENTS.values())


def test_the_miniature_is_judged_by_itself_and_leaves_the_other_verdict_alone():
    small = replace(finding(a={"": -2.0}), setting=replace(TOY, model=MINIATURE))
    needy = replace(claim_on("a"), needs="a GPU")
    page = ledger(
        {"x": ("where", claim_on("a")), "y": ("window", needy)},
        {
            "where": {"mixture": finding(a={"": 2.0}), MINIATURE: small},
            "window": {MINIATURE: replace(small, setting=PRESETS[MINIATURE])},
        },
    )
    both = "`geosprint reproduce where --quick`, `geosprint reproduce where --model scenes --quick`"
    assert f"| 1 | x | {both} | it. mixture: 2; scenes: -2 | **holds**; in miniature **does not hold** |" in page
    alone = "`geosprint reproduce window --model scenes`"
    assert f"| 2 | y | {alone} | it. scenes: -2 | **not testable here**; in miniature **does not hold** |" in page
    assert "Of the paper's 2 claims: 1 holds, 0 holds in part, 0 does not hold, 1 not testable here." in page
    assert "Of 2 in miniature: 0 holds, 0 holds in part, 2 does not hold, 0 not testable here." in page


@pytest.mark.skipif(not RESULTS.is_dir(), reason="no results are committed")
def test_every_verdict_of_the_ledger_follows_from_comparisons_by_the_rule():
    found = read_findings(RESULTS)
    for text, (experiment, claim) in CLAIMS.items():
        if claim.of is None:
            continue
        comparisons = [one for finding in found[experiment].values() for one in claim.of(finding).values()]
        assert comparisons or claim.needs, text
        assert all(one.low <= one.value <= one.high for one in comparisons), text
        assert claim.judge(found[experiment])[0] == verdict_of([claim.agreement(one) for one in comparisons])


@pytest.mark.skipif(not RESULTS.is_dir(), reason="no results are committed")
def test_the_committed_page_is_what_the_committed_findings_say():
    page = (RESULTS.parents[1] / "claims.md").read_text(encoding="utf-8")
    assert page == ledger(CLAIMS, read_findings(RESULTS))


def test_findings_are_read_by_experiment_and_model(tmp_path):
    with pytest.raises(FileError, match="found none"):
        read_findings(tmp_path)


def test_keep_and_recall_are_inverse_and_the_figure_is_the_same_bytes_every_time(tmp_path):
    found = EXPERIMENTS["where"].run(replace(TOY, trajectories=3))
    for directory in ("one", "other"):
        keep(found, tmp_path / directory, "geosprint reproduce where")
    held = recall(tmp_path / "one")
    assert (held.numbers, held.verdict, held.setting) == (found.numbers, found.verdict, found.setting)
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["figure.png", "finding.json", "rows.csv"]
    figures = [(tmp_path / directory / "figure.png") for directory in ("one", "other")]
    assert figures[0].read_bytes() == figures[1].read_bytes()
    with Image.open(figures[0]) as image:
        assert image.width > 1000
    assert json.loads((tmp_path / "one" / "finding.json").read_text())["command"] == "geosprint reproduce where"


def test_a_verdict_says_of_every_claim_what_was_measured():
    found = EXPERIMENTS["straightness"].run(replace(TOY, trajectories=3, reference_steps=20))
    assert "drops 450 times from DDPM to DDIM (Table 2, right); score of DDPM over that of DDIM at 80%" in found.verdict
    assert "Holds: straighter trajectories are more compressible (Figure 4b); share of points" in found.verdict
