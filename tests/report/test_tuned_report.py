"""The page and the words of what `tune` made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from geosprint.errors import FileError
from geosprint.estimates import Estimate
from geosprint.fitted_solver import FittedSolver
from geosprint.models.exact import ring
from geosprint.report.columns import columns_of
from geosprint.report.findings import found_in
from geosprint.report.page import TOOLS, parts_of, write_report
from geosprint.report.tuned import headline_of, show_tuned, table_of
from geosprint.schedule import StepSchedule
from geosprint.trajectory import Origin
from geosprint.tuned import OURS, TODAY, Today, Tuned, TunedSteps

NOISE = ring().noise
DDIM_50 = Today("ddim", 50, "uniform-leading")
SCALES = 0.9 + 0.2 * np.random.default_rng(0).random(48)  # of 48 held-out samples


def steps_of(k: int, error: float, solver: str = "fitted") -> TunedSteps:
    schedule = StepSchedule.at(np.linspace(999, 20, k).round(), NOISE, {"method": "fitted on tuned", "solver": solver})
    made = FittedSolver(schedule, ((0.5, 0.5),) * k) if solver == "fitted" else schedule
    errors = {OURS: error * SCALES / SCALES.mean(), TODAY: 0.033 * SCALES / SCALES.mean()}
    return TunedSteps(made, solver, errors, Estimate(0.033 / error * 50, 40.0, 60.0))


def tuned(proved: int | None = 9, today: Today | None = DDIM_50, calls: int = 1) -> Tuned:
    made_for = {**Origin.of(ring(), "ddim", 0.0).to_dict(), "calls": calls}
    return Tuned((steps_of(6, 0.06), steps_of(9, 0.031)), today, proved, made_for=made_for, nfe=19_876)


@pytest.fixture
def page(tmp_path):
    return tuned().save(tmp_path / "mixture.json")


def test_the_headline_is_the_ratio_of_network_calls_with_errors_confidence_and_samples_beside_it():
    sentence, beside = headline_of(tuned())
    assert sentence == "9 steps match your 50 DDIM steps: 5.6× fewer network calls"
    assert beside.startswith("Error 0.031 (0.03")
    assert "against 0.033 (" in beside
    assert beside.endswith(": not worse with 95 % confidence, paired on 48 held-out samples.")


def test_heun_and_guidance_are_counted_in_the_ratio():
    sentence, _ = headline_of(tuned(today=Today("heun", 50, "karras"), calls=2))
    assert "11.0× fewer" in sentence  # 2 · (2 · 50 - 1) calls against 2 · 9


def test_a_headline_without_proof_says_so():
    sentence, beside = headline_of(tuned(proved=None))
    assert sentence == "No number of steps up to 9 is proved to match your 50 DDIM steps"
    assert "against 0.033 (0.0324 to 0.0335) today, on 48 held-out samples" in beside


def test_another_wish_than_todays_error_is_not_called_a_match():
    sentence, beside = headline_of(replace(tuned(proved=6), target_error=0.065))  # of error 0.06
    assert sentence == "6 steps reach an error of 0.065"
    assert "against 0.033 (0.0324 to 0.0335) today: with 95 % confidence" in beside


def test_the_table_has_every_number_of_steps_and_today():
    lines = table_of(tuned(calls=2)).lines
    assert [line[0] for line in lines] == ["6", "**9**", "today, 50 DDIM steps"]
    assert [line[1].strip("*") for line in lines] == ["0.06", "0.031", "0.033"]
    assert lines[0][3] == "27.5 (40 to 60)"
    assert [line[4].strip("*") for line in lines] == ["12", "18", "100"]


def test_steps_without_today_are_told_without_a_comparison():
    assert headline_of(tuned(None, today=None))[0] == "9 steps, fitted"


def test_the_terminal_has_the_table_then_the_headline_then_the_files(page, capsys):
    show_tuned(Tuned.load(page), [page])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["K", "error", "95", "%", "interval", "today's", "steps", "calls", "per", "image"]
    assert shown[-3] == headline_of(tuned())[0]
    assert shown[-1] == f"→ {page}"


def test_the_page_begins_with_the_headline_and_shows_every_number_of_steps(page, tmp_path):
    (tmp_path / "stranger.json").write_text('{"format": "geosprint-tuned"}')
    text = write_report(page.parent, tmp_path / "mixture.html", [page]).read_text(encoding="utf-8")
    assert "stranger" not in text
    assert "<h1>9 steps match your 50 DDIM steps: 5.6× fewer network calls</h1>" in text
    assert "paired on 48 held-out samples" in text
    rows = text[text.index('id="tuned"') : text.index('id="curves"')]
    assert rows.count("<tr") == 1 + 3
    assert '<tr class="strong"><th scope="row">9</th><td>0.031</td>' in rows
    assert "19,876 network calls" in text
    assert "mixture.json: 6 steps" in text[text.index('id="pick-copyable"') :]


def test_a_tool_that_would_lose_the_coefficients_is_not_offered(page, tmp_path):
    replace(tuned(None, None), results=(steps_of(5, 0.05, "ddim"),)).save(tmp_path / "kept.json")
    offered = {one["name"]: one["texts"] for one in parts_of(found_in(tmp_path), tmp_path)["data"]["copyables"]}
    assert offered["mixture.json: 9 steps"].keys() == {"geosprint", "json"}
    assert 'geosprint.apply(pipe, "mixture.json")' in offered["mixture.json: 9 steps"]["geosprint"]
    assert "num_inference_steps=9" in offered["mixture.json: 9 steps"]["geosprint"]
    assert offered["kept.json"].keys() == TOOLS.keys() - {"vllm", "sglang"}  # for flows


def test_the_chart_has_the_error_of_every_number_of_steps_and_the_level_of_today(page, tmp_path):
    data = parts_of(found_in(tmp_path), tmp_path)["data"]
    (curve,) = data["curves"]
    ours, today = curve["series"]["tuned"], curve["series"]["today, 50 DDIM steps"]
    assert [point[:2] for point in ours] == [(6, 6), (9, 9)]
    np.testing.assert_allclose([point[2] for point in ours], [0.06, 0.031], rtol=1e-6)
    np.testing.assert_allclose([point[2] for point in today], 0.033, rtol=1e-6)
    assert data["looks"]["today, 50 DDIM steps"]["level"]
    assert data["columns"][data["column"]]["label"] == "9 steps"


def test_methods_that_were_compared_on_the_same_samples_are_ranked(tmp_path):
    errors = {OURS: 0.05 * SCALES, "uniform-trailing": 0.08 * SCALES, "dpmpp-2m": 0.04 * SCALES}
    Tuned((replace(steps_of(4, 0.05, "ddim"), errors=errors),)).save(tmp_path / "x.json")
    (column,) = columns_of(found_in(tmp_path))
    assert [entry.name for entry in column.entries] == ["dpmpp-2m", "tuned", "uniform-trailing"]
    assert column.label == "4 steps of ddim"
    assert column.entries[1].gap.value == pytest.approx(-0.03 * SCALES.mean(), rel=1e-4)


def test_a_picture_of_samples_side_by_side_is_shown_where_it_lies(page, tmp_path):
    from PIL import Image

    assert 'id="side-by-side"' not in write_report(tmp_path, tmp_path / "x.html").read_text(encoding="utf-8")
    Image.new("RGB", (30, 20), (9, 8, 7)).save(tmp_path / "side-by-side.png")
    text = write_report(tmp_path, tmp_path / "x.html").read_text(encoding="utf-8")
    assert "data:image/webp" in text[text.index('id="side-by-side"') : text.index('id="tuned"')]


@pytest.mark.parametrize("calls", [0, -3, "many", None])
def test_a_file_that_counts_calls_in_no_sense_is_refused_by_name(tmp_path, calls):
    replace(tuned(), made_for={"calls": calls, "model": ["x"]}).save(tmp_path / "x.json")
    with pytest.raises(FileError, match=r"x\.json is damaged"):
        write_report(tmp_path, tmp_path / "x.html")


def test_a_file_without_errors_of_its_own_steps_still_makes_a_page(tmp_path):
    strange = [replace(steps_of(k, 0.05), errors={TODAY: SCALES}) for k in (6, 9)]
    replace(tuned(), results=tuple(strange)).save(tmp_path / "x.json")
    assert "<h1>9 steps, fitted</h1>" in write_report(tmp_path, tmp_path / "x.html").read_text(encoding="utf-8")
