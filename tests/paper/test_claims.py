from __future__ import annotations

from pathlib import Path

import pytest

from geosprint.errors import FileError
from geosprint.paper.base import TOY, Finding
from geosprint.paper.claims import CLAIMS, FAILS, HOLDS, IN_PART, UNTESTED, Claim, judged, ledger, read_findings
from geosprint.paper.registry import EXPERIMENTS, keep

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "reproduce"


def finding(name, numbers):
    return Finding(name, TOY, [{"a": 1}], numbers, "so it is")


def claim_of(outcome):
    return Claim("x", "here", "where", lambda numbers: (numbers["outcome"], "measured"))


@pytest.mark.parametrize(
    ("outcomes", "word"),
    [
        ([True, True], HOLDS),
        ([False, False], FAILS),
        ([True, False], IN_PART),
        ([True, None], IN_PART),
        ([None], IN_PART),
        ([], UNTESTED),
    ],
)
def test_a_claim_holds_only_if_it_does_on_every_model(outcomes, word):
    found = {"where": {str(i): finding("where", {"outcome": outcome}) for i, outcome in enumerate(outcomes)}}
    assert judged(claim_of(None), found if outcomes else {}).word == word


def test_what_cannot_be_tested_says_what_it_would_take():
    verdict = judged(Claim("x", "here", None, untested="a telescope"), {})
    assert (verdict.word, verdict.measured) == (UNTESTED, "a telescope")


def test_every_claim_names_an_experiment_that_exists_or_what_it_would_take():
    for claim in CLAIMS:
        assert claim.untested if claim.experiment is None else claim.experiment in EXPERIMENTS
    judged_by = {claim.experiment for claim in CLAIMS}
    assert judged_by >= set(EXPERIMENTS)  # no experiment without a claim


def by_name(text):
    return next(claim for claim in CLAIMS if text in claim.text)


@pytest.mark.parametrize(
    ("text", "numbers", "outcome"),
    [
        (
            "450 times",
            {"ddpm_over_ddim": 440, "ddpm_over_ddim_low": 400, "ddpm_over_ddim_high": 500, "share": 0.8},
            True,
        ),
        ("450 times", {"ddpm_over_ddim": 40, "ddpm_over_ddim_low": 30, "ddpm_over_ddim_high": 50, "share": 0.8}, None),
        ("450 times", {"ddpm_over_ddim": 1, "ddpm_over_ddim_low": 0.5, "ddpm_over_ddim_high": 2, "share": 0.8}, False),
        ("log-linearly", {"r2_log_steps": 0.9, "r2_steps": 0.99}, True),
        ("log-linearly", {"r2_log_steps": 0.99, "r2_steps": 0.9}, None),
        ("log-linearly", {"r2_log_steps": 0.9, "r2_steps": 0.9}, False),
        ("k > 2", {"gap": {"rmse": {"3": {"5": {"low": -1, "high": 1}}}}}, True),
        ("k > 2", {"gap": {"rmse": {"3": {"5": {"low": -2, "high": -1}}}}}, None),
        ("0.37", {"correlation": 0.4, "correlation_low": 0.3, "correlation_high": 0.5}, True),
        ("0.37", {"correlation": 0.9, "correlation_low": 0.8, "correlation_high": 0.95}, False),
        ("about 40 s", {"places": {"CIFAR-10": {"analysis_seconds": 0.4}}}, None),
        ("about 40 s", {"places": {"CIFAR-10": {"analysis_seconds": 400}}}, False),
    ],
)
def test_judges_can_say_yes_and_no(text, numbers, outcome):
    assert by_name(text).judge(numbers)[0] is outcome


def gap_of(low, high):
    return {"value": (low + high) / 2, "low": low, "high": high}


@pytest.mark.parametrize(
    ("gaps", "outcome"),
    [([(-2, -1), (-3, -1)], True), ([(-2, -1), (-1, 1)], None), ([(-1, 1), (1, 2)], False)],
)
def test_nearer_at_every_nfe_means_every(gaps, outcome):
    by_k = {str(k): gap_of(*gap) for k, gap in enumerate(gaps)}
    numbers = {"frechet_data": {"gap": {"uniform-trailing": by_k}}}
    assert by_name("at every NFE").judge(numbers)[0] is outcome


def test_findings_are_read_by_experiment_and_model(tmp_path):
    with pytest.raises(FileError, match="found none"):
        read_findings(tmp_path)


@pytest.mark.skipif(not RESULTS.is_dir(), reason="no results are committed")
def test_the_committed_page_is_what_the_committed_findings_say():
    assert (RESULTS.parents[1] / "claims.md").read_text(encoding="utf-8") == ledger(read_findings(RESULTS))


def test_keep_and_recall_are_inverse(tmp_path):
    found = EXPERIMENTS["where"].run(TOY)
    keep(found, tmp_path / "where", "geosprint reproduce where")
    held = read_findings(tmp_path)["where"]["mixture"]
    assert held.numbers == found.numbers
    assert held.verdict == found.verdict
    assert held.setting == found.setting
    assert (tmp_path / "where" / "figure.svg").stat().st_size > 1000
