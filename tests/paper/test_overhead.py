from dataclasses import replace

import pytest
from drawn import are_drawn

from geosprint.paper.base import TOY
from geosprint.paper.overhead import OVERHEAD, PAPER, STAGES, Size, break_even, extrapolated, plot, verdict


@pytest.fixture(scope="module")
def finding():
    return OVERHEAD.run(TOY)


def test_rows_are_every_stage_here_and_at_the_papers_sizes(finding):
    assert len({tuple(row) for row in finding.rows}) == 1
    places = ["mixture, here", "CIFAR-10", "LSUN Church", "SD v1.5"]
    assert [(row["place"], row["stage"]) for row in finding.rows] == [(p, stage) for p in places for stage in STAGES]
    assert all(row["seconds"] > 0 for row in finding.rows)
    assert [row["how"] for row in finding.rows] == ["measured"] * 5 + ["extrapolated"] * 15


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


def test_the_analysis_grows_with_trajectories_and_only_its_products_with_dimensions():
    one = {"gram": 0.1, "threshold search": 0.2, "score table": 0.3}
    found = extrapolated(one, Size(50, 200, 2 * 3072), per_call=0.01, schedule=0.5)
    assert found == {
        "record": pytest.approx(100),
        "gram": pytest.approx(10),
        "threshold search": pytest.approx(10),
        "score table": pytest.approx(15),
        "schedule": 0.5,
    }


def test_totals_and_shares_add_up(finding):
    cell = finding.numbers["places"]["CIFAR-10"]
    parts = {row["stage"]: row["seconds"] for row in finding.rows if row["place"] == "CIFAR-10"}
    assert cell["total_seconds"] == pytest.approx(sum(parts.values()))
    analysis = parts["gram"] + parts["threshold search"] + parts["score table"]
    assert cell["analysis_seconds"] == pytest.approx(analysis)
    assert cell["record_share"] == pytest.approx(parts["record"] / sum(parts.values()))
    assert cell["record_share_as_timed"] == pytest.approx(960 / (960 + analysis + parts["schedule"]))
    here = finding.numbers["places"]["mixture, here"]
    assert here["record_share_as_timed"] == here["record_share"]


def test_the_recording_is_paid_when_the_saved_calls_are_as_many():
    assert break_even(20_000, 60) == 1000  # 60 steps for 80: 20 calls saved a sample
    assert break_even(20_001, 60) == 1001
    assert break_even(10, 60) == 1


def made_up(share, analysis, schedule):
    cell = {"record_share_as_timed": share, "analysis_seconds": analysis, "schedule_seconds": schedule}
    return {"places": {"CIFAR-10": cell}, "seconds_per_call": 0.002, "break_even_samples": {"20": 3000}}


def test_the_verdict_can_say_either():
    yes, no = verdict(made_up(0.9, 4.0, 0.001)), verdict(made_up(0.2, 80.0, 3.0))
    assert "dominates the offline cost at 1 of 1 sizes" in yes
    assert "takes 4.0 s, 10 times less than the paper's 40 s" in yes
    assert "is instantaneous" in yes
    assert "3,000 samples at K = 20" in yes
    assert "at 0 of 1 sizes" in no
    assert "80.0 s, more than the paper's 40 s" in no
    assert "is not instantaneous" in no
    assert "about the paper's 40 s" in verdict(made_up(0.9, 40.0, 0.001))


def test_flows_cost_as_many_calls():
    found = OVERHEAD.run(replace(TOY, model="other_models:flow_ring"))
    assert found.rows[0]["nfe"] == 240


def test_the_figure_is_drawn(finding, tmp_path):
    assert are_drawn(plot(finding, tmp_path / "figure"))
