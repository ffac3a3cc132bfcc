"""Small directories as the verbs leave them, and one browser for all tests of a file."""

from __future__ import annotations

import os
import shutil

import pytest
from small_comparison import COMMAND, PLAN

from geosprint.comparison.run import compare
from geosprint.integrations.adapter import load_model
from geosprint.report.comparison import leave_files
from geosprint.report.page import write_report


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """A comparison of pictures, its profile and its report."""
    out = tmp_path_factory.mktemp("compared")
    leave_files(compare(load_model("digits"), out, PLAN), out, COMMAND)
    write_report(out, out / "report.html")
    return out


@pytest.fixture
def copied(compared, tmp_path):
    """A directory of the comparison that a test may spoil."""
    return shutil.copytree(compared, tmp_path / "copied")


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window and without network."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("no chromium and chromedriver here; `make browser` installs them on Debian")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--disable-default-apps",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):  # fmt: skip
        options.add_argument(flag)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to build its own for root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    yield opened
    opened.quit()
