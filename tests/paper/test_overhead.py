from dataclasses import replace

import pytest
from drawn import is_drawn
from judging import word
from toy import TOY

from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.overhead import OVERHEAD, PAPER, Size, break_even, extrapolated


@pytest.fixture(scope="module")
def finding():
    return OVERHEAD.run(TOY)


def test_rows_are_every_stage_here_and_at_the_papers_sizes(finding):
    assert len({tuple(row) for row in finding.rows}) == 1
    places = ["mixture, here", "CIFAR-10", "LSUN Church", "SD v1.5"]
    stages = ["record", "analysis", "schedule"]
    assert [(row["place"], row["stage"]) for row in finding.rows] == [(p, stage) for p in places for stage in stages]
    assert all(row["seconds"] > 0 for row in finding.rows)
    assert [row["how"] for row in finding.rows] == ["measured"] * 3 + ["extrapolated"] * 9


def test_calls_are_those_of_recording_and_the_papers_are_the_papers(finding):
    calls = {row["place"]: row["nfe"] for row in finding.rows if row["stage"] == "record"}
    assert calls == {"mixture, here": 8 * 30, "CIFAR-10": 20_000, "LSUN Church": 10_000, "SD v1.5": 10_000}
    assert sum(row["nfe"] for row in finding.rows if row["stage"] != "record") == 0
    assert PAPER["LSUN Church"].dimensions == 196_608
    assert PAPER["SD v1.5"].dimensions == 16_384


def test_recording_at_the_papers_size_is_its_calls_at_this_models_speed(finding):
    seconds = {row["place"]: row["seconds"] for row in finding.rows if row["stage"] == "record"}
    assert seconds["CIFAR-10"] == pytest.approx(seconds["mixture, here"] / 240 * 20_000)
    assert finding.numbers["seconds_per_call"] == pytest.approx(seconds["mixture, here"] / 240)


def test_the_analysis_grows_with_trajectories_and_dimensions():
    found = extrapolated(Size(50, 200, 2 * 3072), 0.1, per_call=0.01, schedule=0.5)
    assert found == {"record": pytest.approx(100), "analysis": pytest.approx(10), "schedule": 0.5}


def test_totals_and_shares_add_up(finding):
    cell = finding.numbers["places"]["CIFAR-10"]
    parts = {row["stage"]: row["seconds"] for row in finding.rows if row["place"] == "CIFAR-10"}
    assert cell["total_seconds"] == pytest.approx(sum(parts.values()))
    assert cell["analysis_seconds"] == parts["analysis"]
    assert cell["record_share"] == pytest.approx(parts["record"] / sum(parts.values()))
    assert cell["record_share_as_timed"] == pytest.approx(960 / (960 + parts["analysis"] + parts["schedule"]))
    here = finding.numbers["places"]["mixture, here"]
    assert here["record_share_as_timed"] == here["record_share"]


def test_the_recording_is_paid_when_the_saved_calls_are_as_many():
    assert break_even(20_000, 60) == 1000  # 60 steps for 80: 20 calls saved a sample
    assert break_even(20_001, 60) == 1001
    assert break_even(10, 60) == 1


def made_up(share, analysis, schedule):
    cell = {"record_share_as_timed": share, "analysis_seconds": analysis, "schedule_seconds": schedule}
    return {"places": {"CIFAR-10": cell}}


def test_the_claims_can_hold_and_fail():
    quick, slower, slow = made_up(0.9, 4.0, 0.001), made_up(0.6, 60.0, 0.15), made_up(0.2, 90.0, 3.0)
    for text in ("about 40 s", "instantaneous"):
        assert [word(OVERHEAD, text, numbers) for numbers in (quick, slower, slow)] == [HOLDS, IN_PART, FAILS]
    assert word(OVERHEAD, "dominated", quick) == HOLDS
    assert word(OVERHEAD, "dominated", slow) == FAILS


def test_flows_cost_as_many_calls():
    found = OVERHEAD.run(replace(TOY, model="other_models:flow_ring"))
    assert found.rows[0]["nfe"] == 240


def test_the_figure_is_drawn(finding):
    assert is_drawn(OVERHEAD.draw(finding))
