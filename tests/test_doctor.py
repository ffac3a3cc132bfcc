"""The doctor says what is there, what is missing, and what to do about it."""

from __future__ import annotations

import json
import platform
import sys
from email.message import Message

import pytest
import torch
from typer.testing import CliRunner

import geosprint
from geosprint import doctor
from geosprint.cli import app
from geosprint.doctor import Finding, examine
from geosprint.errors import ModelError
from geosprint.models.registry import models_in_the_box


@pytest.fixture
def asks_for(monkeypatch):
    """Pretend that the package asks for other things than it does."""

    def pretend(*requirements, extras=()):
        told = Message()
        for requirement in requirements:
            told["Requires-Dist"] = requirement
        for extra in extras:
            told["Provides-Extra"] = extra
        monkeypatch.setattr(doctor, "metadata", lambda _: told)

    return pretend


@pytest.fixture
def no_models(monkeypatch):
    monkeypatch.setattr(doctor, "models_in_the_box", dict)


def named(name, kind="version"):
    (finding,) = [finding for finding in examine() if (finding.kind, finding.name) == (kind, name)]
    return finding


def test_a_sound_installation_is_told_with_its_versions_devices_and_models():
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    found = {(one["kind"], one["name"]): one["found"] for one in json.loads(result.stdout)}
    assert found["version", "geosprint"] == geosprint.__version__
    assert found["version", "python"].startswith(platform.python_version())
    assert found["version", "torch"] == torch.__version__
    assert {name for kind, name in found if kind == "device"} == {"cpu", "cuda", "mps"}
    assert {name for kind, name in found if kind == "model"} == set(models_in_the_box())
    assert found["model", "cifar10"].endswith("3×32×32")


def test_people_are_told_the_same_in_words(no_models):
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert ["torch", torch.__version__] in [line.split() for line in result.output.splitlines()]
    assert result.output.endswith("all that runs need is there\n")


def test_a_required_package_that_is_missing_is_named_with_its_remedy_and_code_1(asks_for, no_models):
    asks_for("no-such-package>=2.0")
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "not installed; run: pip install 'no-such-package>=2.0'" in result.output
    assert result.output.endswith("not as it must be: no-such-package\n")


def test_a_required_package_that_is_too_old_is_told_with_both_versions(asks_for, no_models):
    asks_for("rich>=9999")
    finding = named("rich")
    assert finding.is_broken
    assert finding.found.endswith("but it must be >=9999")
    assert finding.remedy == "pip install 'rich>=9999'"


def test_a_required_package_whose_import_fails_is_broken(asks_for, no_models, monkeypatch):
    asks_for("rich>=1")
    monkeypatch.setitem(sys.modules, "rich", None)  # what Python itself does to forbid an import
    finding = named("rich")
    assert finding.is_broken
    assert "importing it failed: ModuleNotFoundError" in finding.found


def test_a_missing_feature_is_no_illness(asks_for, no_models):
    asks_for("no-such-package[fast]==1; extra == 'inception'", extras=("inception",))
    missing = named("compare --features inception", "feature")
    assert (missing.found, missing.remedy) == ("needs no-such-package", "pip install 'no-such-package[fast]==1'")
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 0
    asks_for("rich; extra == 'inception'", extras=("inception",))
    assert named("compare --features inception", "feature").remedy == ""


def test_stable_diffusion_needs_no_extra():
    """Diffusers alone reads no prompts, and loads large weights slowly."""
    needed = {requirement.name for requirement in doctor._asked() if requirement.marker is None}
    assert {"diffusers", "transformers", "accelerate"} <= needed


def test_a_damaged_model_is_named(monkeypatch):
    def damaged(name):
        raise ModelError("the weights are gone")

    monkeypatch.setattr(doctor, "load_model", damaged)
    assert all(finding.is_broken for finding in examine() if finding.kind == "model")
    assert named("digits", "model").found == "ModelError: the weights are gone"


def test_code_that_was_never_installed_is_told_to_install_itself(no_models, monkeypatch):
    def nowhere(_):
        raise doctor.PackageNotFoundError

    monkeypatch.setattr(doctor, "metadata", nowhere)
    assert named("geosprint").remedy == "pip install ."


def test_every_feature_is_an_extra_of_the_package():
    assert set(doctor.PURPOSES) <= set(doctor.metadata("geosprint").get_all("Provides-Extra"))


@pytest.mark.parametrize(("kind", "broken"), [("version", True), ("model", True), ("feature", False)])
def test_only_features_may_be_missing(kind, broken):
    assert Finding(kind, "this", "gone", "get it").is_broken is broken
    assert not Finding(kind, "this", "there").is_broken
