"""What tests of several rooms need."""

from __future__ import annotations

import sys

import pytest

from geosprint import cli


@pytest.fixture
def run(monkeypatch, capsys):
    """The command in this process: its exit code, and what it wrote to both streams."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["geosprint", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as left:
            code = left.code or 0
        caught = capsys.readouterr()
        return code, caught.out, caught.err

    return run
