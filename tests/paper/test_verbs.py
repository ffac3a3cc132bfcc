import sys

import pytest

from geosprint.cli import main
from geosprint.extraction import extract
from geosprint.models.exact import digits, ring
from geosprint.report.terminal import show_profile

SMALL = ("--trajectories", "4", "--reference-steps", "12")


@pytest.fixture
def refusal(monkeypatch, capsys, tmp_path):
    """What a command that must fail says, in a directory with prompts and a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "prompts.txt").write_text("a lighthouse at dusk\n")
    (tmp_path / "a_ring_of_mine.py").write_text("from geosprint.models.exact import ring as make\n")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["geosprint", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert end.value.code == 2
        assert not list(tmp_path.glob("*.json"))
        return said

    return run


@pytest.mark.parametrize("model", ["mixture", "a_ring_of_mine:make"])
@pytest.mark.parametrize("how", [(), ("--save-trajectories", "t.safetensors")])
def test_extract_refuses_prompts_for_a_model_without_any(refusal, model, how):
    said = refusal("extract", model, *SMALL, *how, "--prompts", "prompts.txt")
    assert said.startswith("geosprint: ")
    assert "for" in said
    assert "pipelines" in said
    assert "leave them out" in said


def test_reproduce_refuses_prompts_for_a_model_without_any(refusal):
    said = refusal("reproduce", "budget", "--quick", "--model", "mixture", "--prompts", "prompts.txt")
    assert "for pipelines; 'mixture' is none, leave them out" in said


def test_extract_refuses_prompts_for_what_was_recorded_before(refusal):
    said = refusal("extract", "t.safetensors", "--prompts", "prompts.txt")
    assert "t.safetensors was recorded before" in said


@pytest.mark.parametrize(
    "flag", ["--window", "--levels", "--search", "--space", "--normalisation", "--literal", "--top-k"]
)
@pytest.mark.parametrize("verb", ["extract", "schedule", "budget"])
def test_ablations_of_the_paper_are_for_python(refusal, verb, flag):
    assert f"No such option: {flag}" in refusal(verb, "mixture", flag, "1")


def test_a_low_stability_says_what_to_do(capsys, tmp_path):
    few, many = extract(ring(), 3, 30), extract(digits(), 40, 30)
    assert few.stability().fuzzy_jaccard < 0.8 <= many.stability().fuzzy_jaccard
    show_profile(few, tmp_path)
    assert "record more than 3 with --trajectories" in capsys.readouterr().out
    show_profile(many, tmp_path)
    assert "not stable" not in capsys.readouterr().out
