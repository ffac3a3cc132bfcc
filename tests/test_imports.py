from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import geosprint

HOUSE = Path(geosprint.__file__).parent

FLOORS = [
    ["__main__"],
    ["cli"],
    ["demo", "doctor", "paper", "report"],
    ["comparison"],
    ["tuning"],
    ["rivals"],
    ["fitting", "teacher", "extraction", "call_cache", "metrics"],
    ["sampling"],
    ["integrations"],
    ["tuned", "linear_solver", "fitted_solver", "baselines", "schedule", "profile"],
    ["solvers", "trajectory", "threshold", "models"],
    ["runs"],
    ["geometry", "principal_axes", "noise", "files", "estimates", "errors"],
]
FLOOR = {room: len(FLOORS) - level for level, rooms in enumerate(FLOORS) for room in rooms}

FILES = sorted(path for path in HOUSE.rglob("*.py") if path != HOUSE / "__init__.py")


def names_type_checking(test: ast.expr) -> bool:
    return any(getattr(part, "id", getattr(part, "attr", None)) == "TYPE_CHECKING" for part in ast.walk(test))


def imported_at_run_time(tree: ast.AST) -> list[str]:
    """Every module that this code imports, inside functions too; what only type checkers read is left out."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and names_type_checking(node.test):
            for other in node.orelse:
                found += imported_at_run_time(ast.Module([other], []))
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here, so that this test can read them"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            found += imported_at_run_time(node)
    return found


def module_of(name: str) -> str | None:
    """The module of this package that an imported name lives in: the longest part of it that is a file."""
    parts = name.split(".")
    if parts[0] != "geosprint":
        return None
    for length in range(len(parts), 1, -1):
        place = HOUSE.joinpath(*parts[1:length])
        if place.with_suffix(".py").exists() or (place / "__init__.py").exists():
            return ".".join(parts[1:length])
    return "geosprint"


def modules_imported_by(path: Path) -> set[str]:
    names = imported_at_run_time(ast.parse(path.read_text(encoding="utf-8")))
    return {module for name in names if (module := module_of(name)) and name != "geosprint.__version__"}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(HOUSE).with_suffix("").parts).removesuffix(".__init__")


def packages_named_by(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported_at_run_time(ast.parse(path.read_text(encoding="utf-8")))}


def room_of(module: str) -> str:
    return module.split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_room_imports_only_from_its_own_floor_or_from_below(path):
    here = room_of(name_of(path))
    assert here in FLOOR, f"{here} has no floor yet: give it one here and in the house plan"
    upwards = {
        module
        for module in modules_imported_by(path)
        # The package itself holds the public names of all floors: only the command line may use them.
        if (module == "geosprint" and here != "cli") or FLOOR.get(room_of(module), 0) > FLOOR[here]
    }
    assert upwards == set()


def test_no_modules_import_one_another_in_a_circle():
    below = {name_of(path): modules_imported_by(path) - {name_of(path), "geosprint"} for path in FILES}
    while free := {module for module, needs in below.items() if not needs & below.keys()}:
        below = {module: needs for module, needs in below.items() if module not in free}
    assert below == {}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_the_report_and_the_paper_name_matplotlib(path):
    assert room_of(name_of(path)) in ("report", "paper") or "matplotlib" not in packages_named_by(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_integrations_and_networks_name_diffusers(path):
    allowed = room_of(name_of(path)) == "integrations" or name_of(path) == "models.networks"
    assert allowed or "diffusers" not in packages_named_by(path)


def test_nothing_imports_the_recipes():
    whole = [*FILES, HOUSE / "__init__.py"]
    assert [name_of(path) for path in whole if "recipes" in packages_named_by(path)] == []


def test_no_class_name_exists_twice():
    found = [
        node.name
        for path in HOUSE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted(name for name, count in Counter(found).items() if count > 1) == []


def test_nothing_imports_the_tests_or_scipy():
    for path in FILES:
        assert not packages_named_by(path) & {"scipy", "hypothesis", "pytest", "problems", "references"}


@pytest.mark.parametrize(
    "code",
    [
        "import geosprint",
        "import geosprint.cli",
        "from typer.testing import CliRunner; from geosprint.cli import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0",
    ],
    ids=["the package", "the command line", "help"],
)
def test_help_needs_neither_torch_nor_numpy_nor_diffusers_nor_matplotlib(code):
    report = "import sys; print(*sorted({'torch', 'numpy', 'diffusers', 'matplotlib'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", geosprint.__all__)
def test_every_public_name_can_be_had_from_the_package(name):
    assert getattr(geosprint, name) is not None


def test_the_package_knows_no_other_names():
    with pytest.raises(AttributeError, match="no attribute 'shcedule'"):
        geosprint.shcedule  # noqa: B018
