import io
import json
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.main import get_command
from typer.testing import CliRunner

import geosprint
from geosprint.cli import app, main
from geosprint.integrations.adapter import load_model
from geosprint.noise import DiscreteVP, Flow
from geosprint.profile import CurvatureProfile
from geosprint.sampling import sample
from geosprint.schedule import StepSchedule
from geosprint.trajectory import Trajectories
from references.geometry import score_of_kept

SMALL = ("--trajectories", "6", "--reference-steps", "30")

OWN_MODEL = """
import torch
from geosprint import DiscreteVP, Flow, Network

def make():
    return Network(lambda x, t: torch.tanh(3 * x), (3,), DiscreteVP.named("cosine"), "x0", name="squashing")

def flow():
    return Network(lambda x, t: x - torch.tanh(3 * x), (3,), Flow(shift=3.0), "flow", name="own-flow")

def nan():
    return Network(lambda x, t: x * (float("nan") if t < 500 else 1), (3,), DiscreteVP.named(), "x0", name="breaking")

def narrow():
    return Network(lambda x, t: x[:, :1], (3,), DiscreteVP.named(), "x0")

def tuples():
    return Network(lambda x, t: (x,), (3,), DiscreteVP.named(), "x0")

def fails():
    raise RuntimeError("no weights here,\\nnor elsewhere")

def exits():
    raise SystemExit("no GPU")

def nothing():
    return None

constant = 3
"""


@dataclass(frozen=True)
class Run:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """The installed command in this process, working in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["geosprint", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A profile and a schedule of the mixture, made once by the command."""
    folder = tmp_path_factory.mktemp("made")
    runner = CliRunner()
    for arguments in (
        ["extract", "mixture", *SMALL, "-o", str(folder / "profile.json")],
        ["schedule", str(folder / "profile.json"), "--steps", "5", "-o", str(folder / "schedule.json")],
    ):
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0, result.output
    return folder


def in_a_process(*arguments, cwd):
    """The command as a user runs it."""
    source = os.path.dirname(os.path.dirname(geosprint.__file__))
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "geosprint.cli", *map(str, arguments)],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return Run(done.returncode, done.stdout, done.stderr)


def test_the_whole_chain_from_a_model_to_samples(command, tmp_path):
    profile = command("extract", "digits", *SMALL, "-o", "p.json", "--json").json
    assert (profile["model"], profile["trajectories"], profile["reference_steps"]) == ("digits", 6, 30)
    assert profile["nfe"] == 6 * 30
    assert profile["score_mean"] < 1e-3
    assert 2 <= profile["retained_min"] <= profile["retained_mean"] <= profile["retained_max"] <= 31

    assert command("inspect", "p.json", "-o", "p.png", "--json").json.items() <= profile.items()
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")

    steps = command("schedule", "p.json", "--steps", "8", "-o", "s.json", "--json").json
    assert steps["steps"] == len(steps["timesteps"]) == len(steps["sigmas"]) - 1 == len(steps["log_snr"]) == 8
    assert (steps["timesteps"][0], steps["timesteps"][-1], steps["sigmas"][-1]) == (999, 0, 0)
    kept = DiscreteVP.named().alphas_cumprod[np.array(steps["timesteps"], dtype=int)]
    np.testing.assert_allclose(steps["sigmas"][:-1], np.sqrt((1 - kept) / kept), rtol=1e-9)
    np.testing.assert_allclose(steps["log_snr"], np.log(kept / (1 - kept)), rtol=1e-9)

    found = command("budget", "p.json", "--target-score", "0.05", "-o", "b.json", "--plot", "b.png", "--json").json
    assert found["score"] <= 0.05
    assert found["curve"][str(found["steps"])] == pytest.approx(found["score"], rel=1e-9)
    assert all(score > 0.05 for k, score in found["curve"].items() if int(k) < found["steps"])
    assert len(StepSchedule.load(tmp_path / "b.json")) == found["steps"]

    drawn = command("sample", "digits", "--schedule", "s.json", "-n", "4", "-o", "x.safetensors", "--json").json
    assert (drawn["number"], drawn["nfe"], drawn["steps"]) == (4, 32, 8)
    samples = load_file(tmp_path / "x.safetensors")["samples"]
    expected = sample(load_model("digits"), steps["timesteps"], range(4))
    torch.testing.assert_close(samples, expected, rtol=1e-4, atol=1e-4)
    assert sorted(os.listdir(tmp_path)) == ["b.json", "b.png", "p.json", "p.png", "s.json", "x.safetensors"]


def test_the_score_of_a_budget_is_that_of_its_steps_from_the_definition(command, tmp_path):
    command("extract", "mixture", *SMALL, "-o", "p.json", "--save-trajectories", "t.safetensors")
    found = command("budget", "p.json", "--target-score", "0.02", "-o", "b.json", "--json").json
    recorded = Trajectories.load(tmp_path / "t.safetensors")
    grid = recorded.timesteps[:-1]
    kept = [int(np.abs(grid - t).argmin()) for t in found["timesteps"]]
    expected = score_of_kept(recorded.gram(), kept).mean()
    assert found["score"] == pytest.approx(expected, rel=1e-2)


def test_the_text_of_every_verb_names_its_file_and_its_numbers(command, made):
    assert (
        "mixture, 6 trajectories of 30 ddim steps (180 network calls)" in command("inspect", made / "profile.json").out
    )
    text = command("schedule", made / "profile.json", "--steps", "3", "-o", "s.json").out
    assert "s.json: 3 steps" in text
    assert re.search(r"timesteps +999, \d+, 0\n", text)
    assert "target 0.05" in command("budget", made / "profile.json", "--target-score", "0.05").out
    assert (
        "3 samples, 9 network calls each → x.png"
        in command("sample", "mixture", "--steps", "5", "--solver", "heun", "-n", "3", "-o", "x.png").out
    )
    listed = command("models").out
    assert all(name in listed for name in ("gaussian", "mixture", "digits"))


def test_the_text_survives_a_terminal_without_unicode(command, made, monkeypatch):
    bytes_out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_out, encoding="cp1252", write_through=True))
    assert command("inspect", made / "profile.json").code == 0
    assert b"6 trajectories" in bytes_out.getvalue()


def test_the_models_as_json_can_all_be_loaded(command):
    for entry in command("models", "--json").json:
        assert load_model(entry["name"]).shape
        assert entry["description"]


def test_the_version_is_that_of_the_package(command):
    assert command("--version").out == f"geosprint {geosprint.__version__}\n"


@pytest.mark.parametrize(
    "verb", ["models", "extract", "inspect", "schedule", "budget", "sample", "compare", "demo", "doctor"]
)
def test_every_verb_explains_itself(verb):
    result = CliRunner().invoke(app, [verb, "--help"])
    assert result.exit_code == 0
    assert "--json" in re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@pytest.mark.parametrize(
    ("shell", "said"), [("bash", "complete -o default"), ("zsh", "#compdef"), ("fish", "complete")]
)
def test_the_completion_of_a_shell_can_be_shown(shell, said, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # else it asks which shell runs the tests
    result = CliRunner().invoke(app, ["--show-completion", shell])
    assert result.exit_code == 0
    assert said in result.output


@pytest.mark.parametrize(
    ("typed", "offered"), [("geosprint ex", {"extract", "export"}), ("geosprint tune --st", {"--steps"})]
)
def test_a_shell_is_offered_the_words_that_fit(typed, offered):
    asked = {"_GEOSPRINT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "geosprint")],
        env={**os.environ, **asked}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert set(done.stdout.split()) == offered


def test_defaults_are_those_of_the_paper():
    import inspect

    from geosprint import cli

    extract = {name: p.default for name, p in inspect.signature(cli.extract).parameters.items()}
    assert (extract["trajectories"], extract["reference_steps"], extract["solver"]) == (100, 200, "ddim")
    assert extract["target_score"] == 1e-3
    assert inspect.signature(cli.schedule).parameters["blend"].default == 0.6
    assert inspect.signature(cli.sample).parameters["number"].default == 16


# Seeds.


def test_a_seed_repeats_itself_and_another_does_not(command, tmp_path):
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        command("extract", "mixture", *SMALL, "--seed", seed, "-o", f"{name}.json")
        command(
            "sample",
            "mixture",
            "--steps",
            "5",
            "-n",
            "3",
            "--solver",
            "ddpm",
            "--seed",
            seed,
            "-o",
            f"{name}.safetensors",
        )
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()
    assert (tmp_path / "a.json").read_text() != (tmp_path / "c.json").read_text()
    a, b, c = (load_file(tmp_path / f"{name}.safetensors")["samples"] for name in "abc")
    assert torch.equal(a, b)
    torch.testing.assert_close(a[1:], c[:2], rtol=1e-4, atol=1e-4)  # sample i has seed + i
    assert CurvatureProfile.load(tmp_path / "a.json").seeds == tuple(range(7, 13))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--solver", "heun"),
        ("--target-score", "1e-6"),
        ("--target-score", "1e-2", "--batch", "4"),
    ],
    ids=" ".join,
)
def test_saved_trajectories_profiled_again_give_the_same_profile(command, tmp_path, options):
    recording = {"--solver", "--batch"}  # the rest is asked again of the saved trajectories
    pairs = zip(options[::2], options[1::2], strict=True)
    settings = [word for pair in pairs if pair[0] not in recording for word in pair]
    command("extract", "mixture", *SMALL, *options, "-o", "direct.json")
    command("extract", "mixture", *SMALL, *options, "-o", "while-saving.json", "--save-trajectories", "t.safetensors")
    again = command("extract", "t.safetensors", *settings, "-o", "again.json")
    assert again.code == 0, again.err
    contents = [
        json.loads((tmp_path / name).read_text()) for name in ("direct.json", "while-saving.json", "again.json")
    ]
    assert contents[1] == contents[2]
    for name in ("kept", "seeds", "timesteps", "settings", "origin", "nfe"):
        assert contents[0][name] == contents[1][name], name
    np.testing.assert_allclose(contents[0]["scores"], contents[1]["scores"], rtol=1e-3)


# Your own model.


def test_your_own_model_is_found_in_the_current_directory(command, tmp_path):
    (tmp_path / "own_model_here.py").write_text(OWN_MODEL)
    assert command("extract", "own_model_here:make", *SMALL).code == 0
    profile = CurvatureProfile.load(tmp_path / "profile.json")
    assert profile.origin.model == "squashing"
    assert profile.noise.same_as(DiscreteVP.named("cosine"))
    assert command("schedule", "profile.json", "--steps", "4").code == 0
    assert command("sample", "own_model_here:make", "--schedule", "schedule.json", "-n", "2").code == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "own_model_here.py", "profile.json", "samples.png", "schedule.json",
    ]  # fmt: skip


def test_your_own_flow_keeps_its_shift(command, tmp_path):
    (tmp_path / "own_flow_here.py").write_text(OWN_MODEL)
    assert command("extract", "own_flow_here:flow", *SMALL).code == 0
    noise = CurvatureProfile.load(tmp_path / "profile.json").noise
    assert noise == Flow(shift=3.0)
    steps = command("schedule", "profile.json", "--steps", "4", "--json").json
    assert steps["timesteps"][0] == 1000
    np.testing.assert_allclose(steps["sigmas"][:-1], np.array(steps["timesteps"]) / 1000)


# As a process.


def test_no_public_name_is_hidden_by_a_module_of_the_same_name():
    """Importing geosprint.x sets that name on the package, whatever the package meant by it."""
    modules = {module.name for module in pkgutil.iter_modules(geosprint.__path__)}
    assert modules.isdisjoint(geosprint.__all__)


def test_the_command_in_its_own_process_prints_json_alone_on_stdout(tmp_path):
    (tmp_path / "own_model.py").write_text(OWN_MODEL)
    done = in_a_process("extract", "own_model:make", *SMALL, "--json", cwd=tmp_path)
    assert done.code == 0
    assert done.json["model"] == "squashing"
    assert (tmp_path / "profile.json").is_file()


def test_a_wrong_word_in_its_own_process_is_one_sentence_and_code_2(tmp_path):
    done = in_a_process("sample", "no-such-model", "--steps", "5", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("geosprint: there is no model 'no-such-model'")
    assert done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


# What the user got wrong.


def refused(run, said, folder, files=()):
    """Exit code 2, one line on stderr, nothing on stdout, no file made."""
    assert run.code == 2, run
    assert run.out == ""
    lines = [line for line in run.err.splitlines() if line.startswith("geosprint: ")]
    assert len(lines) == 1, run.err
    assert re.search(said, lines[0]), lines[0]
    assert "Traceback" not in run.err
    leftover = re.sub(r"(record|sample): .*", "", run.err.replace(lines[0], "")).strip()
    assert leftover == ""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}
    assert found == set(files)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["extract", "dalle"], "no model 'dalle'.*gaussian, mixture, digits"),
        (["extract", "missing.safetensors"], "missing.safetensors"),
        (["extract", "no_such_module_at_all:make"], "no_such_module_at_all"),
        (["extract", "json:no_such_factory"], "no_such_factory"),
        (["extract", ":make"], "make"),
        (["extract", ".relative:make"], "relative"),
        (["extract", "mixture", "--trajectories", "0"], "at least one"),
        (["extract", "mixture", "--reference-steps", "1"], "at least 2, got 1"),
        (["extract", "mixture", "--reference-steps", "1001"], r"2\.\.1000.*got 1001"),
        (["extract", "mixture", "--solver", "dpm"], "ddim, ddpm, euler, heun, dpmpp-2m"),
        (["extract", "mixture", "--solver", "heun", "--eta", "0.5"], "eta belongs to ddim"),
        (["extract", "mixture", "--eta", "2"], r"0\.\.1, got 2"),
        (["extract", "mixture", "--target-score", "0"], "target_score"),
        (["extract", "mixture", "--target-score", "nan"], "target_score"),
        (["extract", "mixture", "--batch", "0"], "batch size must be at least 1"),
        (["extract", "mixture", "--trajectories", "0", "--save-trajectories", "t.safetensors"], "at least one"),
        (["extract", "mixture", *SMALL, "--save-trajectories", "t.bin"], r"\.safetensors, got 't\.bin'"),
        (["sample", "mixture", "--steps", "3", "-n", "99999999999"], "up to 10,000,000 samples, got 99,999,999,999"),
        (["tune", "mixture", "--target-error", "inf"], "target error must be a number above 0, got inf"),
        (["tune", "mixture", "--target-error", "nan"], "target error must be a number above 0, got nan"),
        (["tune", "mixture", "--budget-nfe", "1" + "0" * 20], "budget may be up to 1,000,000,000,000 network calls"),
        (["reproduce", "budget", "--quick", "--model", "mixture", "--device", "cuda"], "computes on cpu alone"),
        (["inspect", "missing.json"], "missing.json"),
        (["schedule", "missing.json", "--steps", "5"], "missing.json"),
        (["budget", "missing.json", "--target-score", "0.1"], "missing.json"),
        (["sample", "mixture", "--schedule", "missing.json"], "missing.json"),
        (["sample", "mixture"], "--schedule FILE or --steps K"),
        (["sample", "mixture", "--solver", "s.json"], "goes to --schedule: say --schedule s.json"),
        (["sample", "mixture", "--steps", "1"], "at least 2, got 1"),
        (["sample", "mixture", "--steps", "0"], "at least 2, got 0"),
        (["sample", "mixture", "--steps", "1001"], r"2\.\.1000.*got 1001"),
        (["sample", "mixture", "--steps", "5", "-n", "0"], "-n must be at least 1"),
        (["sample", "mixture", "--steps", "5", "--batch", "0"], "batch size"),
        (["sample", "mixture", "--steps", "5", "-o", "x.jpg"], r"\.png or \.safetensors, got 'x\.jpg'"),
        (["sample", "mixture", "--steps", "5", "-o", "x"], r"\.png or \.safetensors"),
        (["sample", "mixture", "--steps", "5", "--spacing", "magic"], "uniform-leading.*magic"),
        (["sample", "mixture", "--steps", "5", "--solver", "plms"], "ddim, ddpm"),
        (["sample", "mixture", "--steps", "5", "--solver", "heun", "--eta", "0.5"], "eta belongs to ddim"),
        (["sample", "mixture", "--steps", "5", "--seed", "99999999999999999999"], "seed"),
        (["demo", "dalle"], "no model 'dalle'"),
        (["demo", "mixture", "--budget-nfe", "100"], "a budget of at least"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_leaves_no_file(command, tmp_path, arguments, said):
    refused(command(*arguments), said, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["schedule", "--steps", "1"], "at least 2, got 1"),
        (["schedule", "--steps", "1001"], r"2\.\.1000.*got 1001"),
        (["schedule", "--steps", "5", "--blend", "1.5"], r"0\.\.1, got 1\.5"),
        (["schedule", "--steps", "5", "--blend", "nan"], r"0\.\.1"),
        (["budget", "--target-score", "0"], "positive"),
        (["budget", "--target-score", "nan"], "positive"),
        (["budget", "--target-score", "1e-12"], "the lowest is"),
        (["budget", "--target-score", "0.1", "--blend", "-1"], r"0\.\.1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_about_a_profile_is_one_sentence_and_leaves_no_file(command, made, tmp_path, arguments, said):
    verb, *rest = arguments
    refused(command(verb, made / "profile.json", *rest, "-o", "s.json"), said, tmp_path)


def damages():
    def edited(**changes):
        return lambda text: json.dumps({**json.loads(text), **changes})

    yield "cut short", lambda text: text[: len(text) // 2]
    yield "empty", lambda text: ""
    yield "a list", lambda text: "[1, 2]"
    yield "binary", lambda text: "\x00\x01\x02"
    yield "another format", edited(format="geosprint-thing")
    yield "another version", edited(version=99)
    yield "nan", lambda text: text.replace('"version": 1', '"version": NaN')
    yield "steps as text", edited(timesteps="many")
    yield "rising timesteps", edited(timesteps=[1, 2, 3])
    yield "without timesteps", lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "timesteps"})


@pytest.mark.parametrize(("name", "damage"), list(damages()), ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("kind", ["profile", "schedule"])
def test_a_damaged_file_is_refused_by_name(command, made, tmp_path, name, damage, kind):
    broken = tmp_path / "broken.json"
    broken.write_text(damage((made / f"{kind}.json").read_text()))
    if kind == "profile":
        run = command("schedule", "broken.json", "--steps", "5", "-o", "x.json")
    else:
        run = command("sample", "mixture", "--schedule", "broken.json")
    refused(run, "broken.json", tmp_path, ["broken.json"])


@pytest.mark.parametrize(
    "changes",
    [
        {"kept": ["10"]},
        {"kept": 5},
        {"seeds": [1]},
        {"origin": {}},
        {"origin": None},
        {"settings": {"window": 2, "colour": "red"}},
        {"settings": {"window": "two"}},
        {"chord_scores": [[1.0]]},
        {"chord_points": "all"},
        {"chord_points": [0, 1]},
        {"nfe": None},
        {"versions": 3},
        {"chord_points": [*range(30), 5000]},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_a_profile_edited_by_hand_is_refused_by_name(command, made, tmp_path, changes):
    content = {**json.loads((made / "profile.json").read_text()), **changes}
    (tmp_path / "edited.json").write_text(json.dumps(content))
    refused(command("budget", "edited.json", "--target-score", "0.05"), "edited.json", tmp_path, ["edited.json"])


def test_a_profile_is_no_schedule_and_a_schedule_no_profile(command, made, tmp_path):
    refused(command("sample", "mixture", "--schedule", made / "profile.json"), "must be a geosprint-tuned, ", tmp_path)
    refused(command("schedule", made / "schedule.json", "--steps", "5"), "must be a geosprint-profile", tmp_path)


def test_damaged_trajectories_are_refused_by_name(command, tmp_path):
    command("extract", "mixture", *SMALL, "--save-trajectories", "t.safetensors", "-o", "p.json")
    whole = (tmp_path / "t.safetensors").read_bytes()
    for content in (whole[:-100], whole[:20], b"", b"not tensors at all"):
        (tmp_path / "t.safetensors").write_bytes(content)
        refused(
            command("extract", "t.safetensors", "-o", "x.json"), "t.safetensors", tmp_path, ["p.json", "t.safetensors"]
        )


def test_a_directory_in_place_of_a_file_is_refused(command, tmp_path):
    (tmp_path / "folder").mkdir()
    refused(command("inspect", "folder"), "folder", tmp_path, ["folder"])
    (tmp_path / "folder.safetensors").mkdir()
    refused(command("extract", "folder.safetensors"), "folder", tmp_path, ["folder", "folder.safetensors"])


def test_a_schedule_of_another_noise_schedule_is_refused_with_both_values(command, made, tmp_path):
    (tmp_path / "other_noise.py").write_text(OWN_MODEL)
    for factory in ("make", "flow"):
        run = command("sample", f"other_noise:{factory}", "--schedule", made / "schedule.json")
        refused(run, "model '(squashing|own-flow)'.*own profile", tmp_path, ["other_noise.py"])


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("nan", "'breaking' returned nan or infinity for seed 4 at t ="),
        ("narrow", "same shape"),
        ("tuples", "tensor"),
        ("fails", "RuntimeError: no weights here, nor elsewhere"),
        ("exits", "SystemExit: no GPU"),
        ("nothing", "NoneType lacks name"),
        ("constant", "function without arguments"),
        ("absent", "absent"),
    ],
)
def test_your_own_model_that_misbehaves_is_named(command, tmp_path, factory, said):
    (tmp_path / "own_misbehaving.py").write_text(OWN_MODEL)
    run = command("extract", f"own_misbehaving:{factory}", *SMALL, "--seed", "4")
    refused(run, said, tmp_path, ["own_misbehaving.py"])


@pytest.mark.parametrize(
    ("name", "text"),
    [("syntax", "def make(:\n"), ("early", "raise RuntimeError('too early')\n"), ("script", "raise SystemExit(0)\n")],
)
def test_a_module_that_cannot_be_imported_is_named(command, tmp_path, name, text):
    (tmp_path / f"broken_{name}.py").write_text(text)
    refused(command("extract", f"broken_{name}:make"), f"broken_{name}", tmp_path, [f"broken_{name}.py"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["extract", "mixture", *SMALL, "-o", "taken/p.json"],
        ["extract", "mixture", *SMALL, "--save-trajectories", "taken/t.safetensors"],
        ["schedule", "PROFILE", "--steps", "5", "-o", "taken/s.json"],
        ["budget", "PROFILE", "--target-score", "0.05", "-o", "taken/s.json"],
        ["inspect", "PROFILE", "-o", "taken/p.png"],
        ["sample", "mixture", "--steps", "5", "-o", "taken/x.png"],
        ["sample", "mixture", "--steps", "5", "-o", "taken/x.safetensors"],
        ["schedule", "PROFILE", "--steps", "5", "-o", "s" * 300 + ".json"],
    ],
    ids=lambda value: " ".join(value)[:50],
)
def test_an_output_that_cannot_be_written_is_refused(command, made, tmp_path, arguments):
    (tmp_path / "taken").write_text("a file, where a directory is wanted")
    arguments = [str(made / "profile.json") if word == "PROFILE" else word for word in arguments]
    refused(command(*arguments), "cannot write", tmp_path, ["taken"])


def test_an_output_that_is_a_directory_is_refused(command, made, tmp_path):
    (tmp_path / "s.json").mkdir()
    done = command("schedule", made / "profile.json", "--steps", "5", "-o", "s.json")
    refused(done, "s.json is a directory; choose another path with -o", tmp_path, ["s.json"])


def test_an_output_in_a_new_directory_is_written(command, made, tmp_path):
    assert command("schedule", made / "profile.json", "--steps", "5", "-o", "new/deep/s.json").code == 0
    assert len(StepSchedule.load(tmp_path / "new" / "deep" / "s.json")) == 5


def test_a_refused_output_leaves_the_old_file_as_it_was(command, made, tmp_path):
    (tmp_path / "s.json").write_text("precious")
    command("schedule", made / "profile.json", "--steps", "5000", "-o", "s.json")
    assert (tmp_path / "s.json").read_text() == "precious"


@pytest.mark.parametrize(
    "arguments", [["schedule", "p.json"], ["sample", "mixture", "--stps", "5"], ["fly"], ["sample"]]
)
def test_an_unknown_word_or_a_missing_one_is_code_2_without_a_traceback(command, arguments):
    run = command(*arguments)
    assert run.code == 2
    assert run.out == ""
    assert "Traceback" not in run.err


def test_samples_go_into_a_folder_one_by_one(command, tmp_path):
    assert command("sample", "digits", "--steps", "3", "-n", "3", "-o", tmp_path / "pictures").code == 0
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == ["000000.png", "000001.png", "000002.png"]
    assert command("sample", "mixture", "--steps", "3", "-n", "3", "-o", tmp_path / "points").code == 2


# Help.


def help_of(*verb, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 100)
    result = CliRunner().invoke(app, [*verb, "--help"])
    assert result.exit_code == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


def test_help_groups_the_verbs_by_the_question_that_they_answer(monkeypatch):
    text = help_of(monkeypatch=monkeypatch)
    panels = re.findall(r"╭─ (.*?) ─+╮\n(.*?)╰", text, re.DOTALL)
    listed = {title: tuple(re.findall(r"^│ ([a-z]+) ", body, re.MULTILINE)) for title, body in panels[1:]}
    assert listed == {
        "Make it faster": ("tune", "fit", "export", "save", "sample"),
        "Look": ("inspect", "report", "compare", "demo"),
        "The paper": ("extract", "schedule", "budget", "reproduce", "claims", "merge"),
        "The rest": ("models", "doctor"),
    }


@pytest.mark.parametrize("verb", sorted(get_command(app).commands))
def test_the_everyday_options_of_a_verb_fit_on_one_screen(verb, monkeypatch):
    lines = help_of(verb, monkeypatch=monkeypatch).splitlines()
    options = next(i for i, line in enumerate(lines) if line.startswith("╭─ Options"))
    end = next(i for i in range(options, len(lines)) if lines[i].startswith("╰"))
    assert end < 30
    assert not any("<bool>" in line for line in lines)  # a flag takes no word


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fly"], "No such command 'fly'; try `geosprint --help`"),
        (["tuen", "fashion"], "No such command 'tuen'. Did you mean 'tune'?"),
        (["sample", "mixture", "--steps", "x"], "Invalid value for '--steps': .*; try `geosprint sample --help`"),
        (["schedule", "p.json"], "Missing option '--steps'; try `geosprint schedule --help`"),
    ],
)
def test_a_word_that_no_verb_knows_is_answered_in_one_sentence(command, arguments, said):
    run = command(*arguments)
    assert (run.code, run.out) == (2, "")
    assert re.fullmatch(f"geosprint: {said}\n".replace("?", r"\?"), run.err), run.err


def test_the_command_alone_shows_its_help(command):
    run = command()
    assert run.code == 0
    assert "Make it faster" in run.out
