"""The file itself: whole, in order, readable without a script, and the same every time."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import pytest
from small_comparison import COMMAND

from geosprint.comparison.methods import METHODS
from geosprint.integrations.export import EXPORTS
from geosprint.report.columns import Entry, looks
from geosprint.report.page import TOOLS, write_report


class Reader(HTMLParser):
    """All elements with their attributes and texts, in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = {"tag": tag, "text": "", "inside": [one["tag"] for one in self.open], **dict(attributes)}
        self.elements.append(element)
        if tag not in ("meta", "link", "img", "input", "br", "line"):
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1]["tag"] == tag, f"</{tag}> closes <{self.open[-1]['tag']}>"
        self.open.pop()

    def handle_data(self, text):
        for element in self.open:
            element["text"] += text

    def all(self, *tags):
        return [element for element in self.elements if element["tag"] in tags]


@pytest.fixture(scope="module")
def page(compared):
    return Reader((compared / "report.html").read_text(encoding="utf-8"))


def test_the_file_is_whole_and_small(compared, page):
    assert (compared / "report.html").stat().st_size < 6_000_000
    assert page.open == []


def test_nothing_is_loaded_from_anywhere(page):
    for element in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            assert element.get(name, "#").startswith(("#", "data:")), element
    (policy,) = [one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert not re.search(r"url\(|@import", page.all("style")[0]["text"])


def test_headings_come_in_order_and_there_is_one_first(page):
    levels = [int(one["tag"][1]) for one in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))


def test_landmarks_and_language_are_there(page):
    assert page.all("html")[0]["lang"] == "en"
    for tag in ("header", "nav", "main", "footer"):
        assert len(page.all(tag)) == 1
    for section in page.all("section"):
        assert section["aria-labelledby"]


def test_every_reference_inside_the_page_leads_somewhere(page):
    places = Counter(one["id"] for one in page.elements if "id" in one)
    assert max(places.values()) == 1
    for element in page.elements:
        for name in ("aria-labelledby", "aria-describedby", "data-copies"):
            if name in element:
                assert element[name] in places
        if element.get("href", "").startswith("#"):
            assert element["href"][1:] in places


def test_every_chart_has_a_name_and_its_numbers_in_a_table(page):
    charts = [one for one in page.all("div") if one.get("class") == "chart"]
    assert len(charts) == 8
    for chart in charts:
        assert chart["role"] == "img"
        assert len(chart["aria-label"]) > 20
        assert chart["inside"][-1] == "figure"
    figures = [one for one in page.all("details") if one["inside"][-1] == "figure"]
    assert len(figures) == len(charts)
    for table in page.all("table"):
        assert table["text"].strip()
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in one for one in page.all("th"))


def test_every_control_has_a_name(page):
    for element in page.all("input", "select"):
        assert "label" in element["inside"]
    for button in page.all("button"):
        assert button["text"].strip() or button.get("aria-label")
        assert button["type"] == "button"
    assert all("alt" in image for image in page.all("img"))


def test_the_table_holds_the_numbers_of_the_comparison(page, compared):
    lines = (compared / "results.csv").read_text().splitlines()
    header = lines[0].split(",")
    rows = [dict(zip(header, line.split(","), strict=True)) for line in lines[1:]]
    shown = next(one["text"] for one in page.all("table") if "4 steps of ddim" in one["text"])
    for row in rows:
        if (row["metric"], row["steps"]) == ("rmse", "4"):
            assert f"{float(row['value']):.4g}" in shown
            assert f"{float(row['low']):.3g} to {float(row['high']):.3g}" in shown


def test_command_and_versions_are_there_to_do_it_again(page):
    redo = next(one for one in page.all("section") if one["id"] == "redo")
    assert COMMAND in redo["text"]
    assert "torch" in redo["text"]
    assert "geosprint" in redo["text"]


def test_what_was_run_on_what_stands_at_the_top(page):
    (facts,) = page.all("dl")
    for said in ("digits", "ddim", "4, 6", "12 samples, seeds 10,000,000 to 10,000,011", "20 Heun steps",
                 "4 trajectories of 24 ddim steps, seeds 0 to 3, 96 network calls"):  # fmt: skip
        assert said in facts["text"]


def test_the_same_directory_gives_the_same_bytes(compared, tmp_path):
    again = write_report(compared, tmp_path / "again.html")
    assert again.read_bytes() == (compared / "report.html").read_bytes()


def test_the_same_holds_for_a_directory_of_another_name(compared, tmp_path):
    other = shutil.copytree(compared, tmp_path / "other")
    assert write_report(other, tmp_path / "x.html").read_bytes() == (compared / "report.html").read_bytes()


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_letters_and_lines_stand_out_in_both_themes(theme):
    css = (files("geosprint.report") / "report.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", css)
    colours = {name: both[theme] for name, *both in pairs}
    for letters in ("ink", "quiet", "link"):
        for ground in ("paper", "raised"):
            assert contrast(colours[letters], colours[ground]) >= 4.5
    for line in ("red", "blue", "green", "pink", "grey"):
        assert contrast(colours[line], colours["paper"]) >= 3


def test_no_two_schedules_look_alike_even_without_colours():
    kinds = [(name, Entry(name).kind) for name in METHODS]
    found = looks(kinds)
    assert len({(look["colour"], look["dash"], look["mark"]) for look in found.values()}) == len(METHODS)
    assert len({(look["dash"], look["mark"]) for look in found.values()}) > 0.8 * len(METHODS)
    assert {name for name, look in found.items() if look["strong"]} == {name for name, kind in kinds if kind == "ours"}


def test_every_export_can_be_copied():
    assert set(TOOLS) == set(EXPORTS) | {"geosprint"}
