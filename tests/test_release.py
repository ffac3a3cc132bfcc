"""What is given away: an archive that builds, and a wheel that works where nothing of this tree is."""

from __future__ import annotations

import os
import re
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import geosprint

ROOT = Path(__file__).parents[1]
MEGABYTE = 2**20


def run(*command, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={name: value for name, value in {**os.environ, "OMP_NUM_THREADS": "1"}.items() if name != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The archive of the sources, and the wheel that was built from that archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def elsewhere(built, tmp_path_factory):
    """An environment that holds the wheel, and borrows everything but this tree from the one that runs the tests."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv.create(home / "env", with_pip=False)
    python = home / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", built[1], cwd=home)
    (own,) = (home / "env").glob("lib/python*/site-packages")
    # Paths that a .pth names come last, and .pth files inside them are not read: no editable install gets through.
    (own / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    return home


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package_and_its_licence(built):
    package = ROOT / "src" / "geosprint"
    tracked = {
        f"geosprint/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts)
    }
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    assert tracked == {name for name in names if name.startswith("geosprint/")}
    assert {"geosprint/py.typed", "geosprint/models/assets/fashion/diffusion_pytorch_model.safetensors"} <= names
    assert f"geosprint-{geosprint.__version__}.dist-info/licenses/LICENSE" in names


@pytest.mark.slow
def test_the_archive_holds_tests_and_pages_but_no_heaps_of_results(built):
    with tarfile.open(built[0]) as archive:
        sizes = {member.name.partition("/")[2]: member.size for member in archive if member.isfile()}
    assert {"README.md", "CHANGELOG.md", "CITATION.cff", "constraints.txt", "docs/method.md", "Makefile"} <= set(sizes)
    assert f"tests/{Path(__file__).name}" in sizes
    assert not any(name.startswith((".venv", "out/", "site/", "dist/", ".git/")) for name in sizes)
    weights = sum(size for name, size in sizes.items() if "/assets/" in name)
    assert sum(sizes.values()) - weights < 8 * MEGABYTE


@pytest.mark.slow
def test_the_wheel_does_the_whole_job_outside_the_tree(elsewhere):
    python, command = elsewhere / "env" / "bin" / "python", elsewhere / "env" / "bin" / "geosprint"
    where = run(python, "-c", "import geosprint; print(geosprint.__file__)", cwd=elsewhere)
    assert Path(where.strip()).is_relative_to(elsewhere / "env")
    assert run(command, "--version", cwd=elsewhere).split() == ["geosprint", geosprint.__version__]
    run(command, "demo", "mixture", "--budget-nfe", "2500", "-n", "4", "-o", "demo", cwd=elsewhere)
    assert (elsewhere / "demo" / "report.html").stat().st_size > 0


def test_the_version_stands_in_one_place():
    told = re.compile(rf"\b{re.escape(geosprint.__version__)}\b")
    places = [
        path for path in ("pyproject.toml", "CITATION.cff", "docs/conf.py") if told.search((ROOT / path).read_text())
    ]
    assert places == []


def test_the_citation_names_the_paper_that_readme_names():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    paper = cited["preferred-citation"]
    assert paper["title"] in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert [(author["given-names"], author["family-names"]) for author in paper["authors"]] == [("Arpita", "Joshi")]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()  # what the format asks for


@pytest.mark.parametrize(
    ("package", "holed"),
    [
        ("diffusers", ["0.35.0", "0.37.1"]),  # CVE-2026-44513, CVE-2026-44827
        ("transformers", ["4.56.0", "4.57.1", "5.0.0", "5.2.0"]),  # CVE-2026-4372
        ("torch", ["2.4.0", "2.5.1"]),  # CVE-2025-32434
        ("Jinja2", ["3.1.2", "3.1.5"]),  # CVE-2024-22195, CVE-2025-27516
        ("tqdm", ["4.66.2"]),  # CVE-2024-34062
    ],
)
def test_versions_with_known_holes_are_not_taken(package, holed):
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    (asked,) = (Requirement(line.strip(' ",')) for line in lines if line.strip().startswith(f'"{package}>='))
    assert not any(asked.specifier.contains(version) for version in holed)
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line)
    assert asked.specifier.contains(pinned[package])
