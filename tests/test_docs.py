"""Every block of code in README and on every page runs, made smaller, or says beside it that it does not."""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import geosprint
from geosprint.baselines import baseline_schedule
from geosprint.cli import app, main
from geosprint.models.registry import models_in_the_box
from geosprint.tuned import Tuned
from test_imports import FLOORS

ROOT = Path(__file__).parents[1]
ALL = ["README.md", "CONTRIBUTING.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]
ELSEWHERE = "docs/pipelines.md"  # tests/integrations/test_pipelines_page.py runs it on tiny pipelines
MEASURED = "docs/results/"  # commands that took hours, with what they printed
NOT_RUN = "not run here"
COMMANDS = ("", "console", "bash")
# tests/test_release.py installs
INSTALLING = ("python3 -m venv .venv", ". .venv/bin/activate", "pip install -c constraints.txt .")

SMALLER = {
    "extract": ["--trajectories", "4", "--reference-steps", "30"],
    "sample": ["-n", "2"],
    "tune": ["--budget-nfe", "2500", "--target-error", "9"],  # which every machine proves, however it rounds
    "fit": ["--budget-nfe", "2500"],
    "compare": [
        "--quick",
        "--steps",
        "3",
        "-n",
        "10",
        "--trajectories",
        "4",
        "--reference-steps",
        "20",
        "--fine-steps",
        "10",
    ],
    "demo": ["-n", "4", "--budget-nfe", "2500"],
}
"""What is added to a verb's words, where the last word counts."""
QUICK_MODEL = {"tune": "mixture", "fit": "mixture", "compare": "mixture"}
"""What stands in for a network, or for digits, where a page's own choice would take minutes."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    options: str
    text: str

    @property
    def is_not_run(self) -> bool:
        return NOT_RUN in self.options

    @property
    def commands(self) -> list[str]:
        """Its lines without comments, if it is typed into a shell."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in joined.splitlines() if shlex.split(line, comments=True)]


def blocks(path: str) -> list[Block]:
    found = re.findall(r"^```([\w-]*)([^\n]*)\n(.*?)^```$", (ROOT / path).read_text(encoding="utf-8"), re.M | re.S)
    return [Block(*parts) for parts in found]


def runnable(path: str) -> list[Block]:
    kinds = ("python", *COMMANDS)
    return [block for block in blocks(path) if block.language in kinds and not block.is_not_run]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A directory with what pages speak of as the reader's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "prompts.txt").write_text("a lighthouse\na bowl of figs\n")
    noise = geosprint.load_model(QUICK_MODEL["fit"]).noise
    baseline_schedule("quadratic", noise, 10).save(tmp_path / "schedule.json")
    return tmp_path


def run_verb(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    verb, *rest = words
    if verb in QUICK_MODEL and rest[0] in models_in_the_box():
        rest[0] = QUICK_MODEL[verb]
    if verb == "compare" and "--methods" not in rest:
        rest += ["--methods", "uniform-trailing,quadratic"]
    if verb == "sample" and "--schedule" in rest:
        held = Tuned.load(Path(rest[rest.index("--schedule") + 1]))
        if held.proved is None and "--steps" not in rest:  # so few calls may prove nothing, and then one must say which
            rest += ["--steps", str(max(held.steps))]
    if "./my-pipeline" in rest:
        save_tiny_pipeline("./my-pipeline")
    monkeypatch.setattr(sys, "argv", ["geosprint", verb, *rest, *SMALLER.get(verb, [])])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a schedule of what stands in may well be another model's
        assert exit_code() == 0, words
    if "-o" in rest:
        assert Path(rest[rest.index("-o") + 1]).exists(), words


def exit_code() -> int:
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def save_tiny_pipeline(folder: str) -> None:
    from integrations import tiny_pipelines

    if not Path(folder).exists():
        tiny_pipelines.sd15().save_pretrained(folder)


def run_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "geosprint":
        run_verb(words, monkeypatch)
    elif program in ("torchrun", "accelerate"):  # one process of them; two are a test of their own
        run_verb(words[words.index("geosprint.cli") + 1 :], monkeypatch)
    elif program == "make":
        assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
    elif program == "python" and words[0] == "-m" and words[1].startswith("benchmarks."):
        assert (ROOT / f"{words[1].replace('.', '/')}.py").exists(), line
    elif program == "python" and words[0].endswith(".py"):
        assert (ROOT / words[0]).exists(), line
    else:
        assert line.strip() in INSTALLING, f"nobody has tried this command: {line}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in ALL if runnable(path) and not path.startswith((ELSEWHERE, MEASURED))]
)
def test_the_blocks_of_the_page_run_one_after_another(path, world, monkeypatch):
    namespace: dict[str, object] = {}
    for block in runnable(path):
        if block.language == "python":
            if name := re.match(r"# (\w+\.py)\n", block.text):
                (world / name[1]).write_text(block.text)
            exec(smaller(block.text), namespace)
            continue
        for line in block.commands:
            run_command(line, monkeypatch)


def smaller(code: str) -> str:
    """The same code with shorter recordings and smaller budgets, and errors to reach that every machine proves."""
    for name, few in (("trajectories", 4), ("reference_steps", 40), ("samples", 12), ("budget_nfe", 2500)):
        code = re.sub(rf"\b{name}=\d+", f"{name}={few}", code)
    code = re.sub(r"\bgeosprint\.(tune|fit)\((?!.*budget_nfe)(.*)\)", r"geosprint.\1(\2, budget_nfe=2500)", code)
    return re.sub(r"\bgeosprint\.tune\((?!.*(steps|target_error))(.*)\)", r"geosprint.tune(\2, target_error=9.0)", code)


@pytest.mark.parametrize("path", [path for path in ALL if path.startswith(MEASURED)])
def test_the_verbs_still_take_the_words_of_commands_that_measured(path, monkeypatch):
    for line in [line for block in runnable(path) for line in block.commands]:
        program, verb, *words = shlex.split(line, comments=True)
        if program == "python":
            run_command(line, monkeypatch)  # a benchmark: it exists
        else:
            assert program == "geosprint"
            get_command(app).commands[verb].make_context(verb, words)  # raises at a word that it does not know


@pytest.mark.parametrize("path", ALL)
def test_every_block_is_of_a_kind_that_is_run_or_says_that_it_is_not(path):
    for block in blocks(path):
        fragment = block.language == "py" and path == "README.md"  # its pipeline is any; run beside docs/pipelines.md
        assert block.is_not_run or fragment or block.language in ("python", "text", *COMMANDS), block


def test_few_blocks_are_not_run():
    assert sum(block.is_not_run for path in ALL for block in blocks(path)) <= 3


def test_the_readme_has_a_python_example_of_ten_lines():
    (example,) = [block.text for block in blocks("README.md") if block.language == "python"]
    assert len([line for line in example.splitlines() if line.strip()]) <= 10


def test_wrapping_a_torch_module_takes_fifteen_lines():
    example, _ = [block.text for block in blocks("docs/own-model.md") if block.language == "python"]
    code = [line for line in example.splitlines() if line.strip() and not line.startswith("#")]
    assert len(code) <= 15


@pytest.mark.slow
def test_the_first_torchrun_command_of_the_page_runs_in_two_processes(tmp_path):
    lines = [line for block in runnable("docs/big-models.md") for line in block.commands]
    arguments = next(shlex.split(line)[1:] for line in lines if line.startswith("torchrun "))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments, "--trajectories", "4", "--reference-steps", "30"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / arguments[arguments.index("-o") + 1]).exists()


def test_every_page_that_readme_links_to_exists():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize(
    ("path", "heading"),
    [("docs/method.md", "## From a formula to its function"), ("CONTRIBUTING.md", "## The walk of `geosprint tune")],
)
def test_every_function_that_the_page_names_exists(path, heading):
    section = re.split(r"\n## ", (ROOT / path).read_text(encoding="utf-8").split(heading)[1])[0]
    named = re.findall(r"`([a-z]\w*(?:\.\w+)+)`", section)
    assert len(named) >= 10
    for name in named:
        assert pkgutil.resolve_name(f"geosprint.{name}"), name


@pytest.mark.slow
def test_the_walk_of_contributing_is_in_the_order_of_first_calls(tmp_path):
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## The walk of `geosprint tune")[1]
    named = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    codes = {inspect.unwrap(pkgutil.resolve_name(f"geosprint.{name}")).__code__: name for name in named}
    called = list[str]()

    def watched(frame, event, _):
        if event == "call" and frame.f_code in codes:
            called.append(codes.pop(frame.f_code))

    sys.setprofile(watched)
    try:
        words = ["tune", "gaussian", "--steps", "10", "--budget-nfe", "3500", "-o", str(tmp_path / "tuned.json")]
        done = CliRunner().invoke(app, words)
    finally:
        sys.setprofile(None)
    assert done.exit_code == 0, done.output
    assert called == named


def test_contributing_lists_the_rooms_as_the_import_test_has_them():
    (listed,) = [block.text for block in blocks("CONTRIBUTING.md") if block.language == "text"]
    rooms = re.findall(r"\w+", " ".join(re.split(r" {2,}", line)[0] for line in listed.splitlines()))
    assert rooms == [room for floor in FLOORS for room in floor]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: a warning is an error."""
    pages, folder = tmp_path_factory.mktemp("pages"), tmp_path_factory.mktemp("site")
    for words in (
        ["docs/pages.py", str(pages)],
        ["-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", f"{pages}-cache", str(pages), str(folder)],
    ):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_tells_every_verb_with_its_options_and_every_public_name(site):
    commands = (site / "commands.html").read_text(encoding="utf-8")
    for name, verb in get_command(app).commands.items():
        assert f"geosprint {name}" in commands
        for parameter in verb.params:
            assert parameter.name == "help" or parameter.opts[-1].upper() in commands.upper(), (name, parameter.opts)
    rows = {cells[0]: cells[1:] for cells in table_rows(commands)}
    assert rows["--eta"][-1] == "0.0"  # a default that is false is still told
    assert rows["PROFILE"][-1] == "required"
    assert rows["--json"][-1] == ""
    names = (site / "api.html").read_text(encoding="utf-8")
    for name in geosprint.__all__:
        assert re.search(rf'id="[\w.-]*{name}"', names, re.IGNORECASE), name


def table_rows(page: str) -> list[list[str]]:
    """The cells of every row of a page's tables, without marks."""
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    ]
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row] for row in rows if row]


@pytest.mark.slow
def test_the_site_fetches_nothing_from_anywhere(site):
    fetched = re.compile(r"""(?:<(?:script|img|iframe|source)\b[^>]*\bsrc|<link\b[^>]*\bhref)=["']?(https?:)?//""")
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\([\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_make_docs_builds_although_a_folder_has_its_name():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    phony = set(re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE).group(1).split())
    assert "docs" in targets
    assert {name for name in targets if (ROOT / name).exists()} <= phony
