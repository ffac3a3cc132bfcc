from dataclasses import replace

import numpy as np
import pytest
import torch
from drawn import is_drawn
from judging import numbers_of, word
from slow import least_score
from toy import TOY

from geosprint.integrations.adapter import load_model
from geosprint.models.base import Network
from geosprint.noise import Flow
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.reflow import (
    REFLOW,
    VelocityNetwork,
    digit_flows,
    family_rows,
    straightness_of,
    velocity_bend,
)
from geosprint.sampling import record

SMALL = replace(TOY, trajectories=4, reference_steps=20, samples=12, repetitions=1)


@pytest.fixture(scope="module")
def finding():
    return REFLOW.run(SMALL)


def straight_flow(x, t):
    """Every point moves by the same vector all the time."""
    return torch.linspace(-1, 2, 6).expand_as(x)


def turning_flow(x, t):
    """The plane is turned by a quarter from noise to sample."""
    return torch.stack([-x[:, 1], x[:, 0]], dim=1) * np.pi / 2


def test_rows_are_of_two_rounds_on_digits_and_one_on_clothes(finding):
    places = [(row["family"], row["round"]) for row in finding.rows]
    assert places == [("digits", 0), ("digits", 1), ("digits", 2), ("fashion", 0), ("fashion", 1)]
    assert {tuple(row) for row in finding.rows} == {tuple(finding.rows[0])}


def test_a_score_is_that_of_trying_every_threshold(finding):
    walks = record(load_model("fashion-reflow"), range(4), 20)
    expected = [least_score(states, 0.8) for states in walks.states.double().numpy()]
    row = finding.rows[-1]
    assert row["score"] == pytest.approx(np.mean(expected), rel=1e-3)
    assert row["score_low"] < row["score"] < row["score_high"]


def test_changes_are_paired_by_seed(finding):
    before, after = (straightness_of(load_model(name), SMALL)["score"] for name in ("fashion-flow", "fashion-reflow"))
    row = finding.rows[-1]
    assert row["change"] == pytest.approx(np.mean(after - before))
    assert row["change_low"] >= (after - before).min()
    assert row["change_high"] <= (after - before).max()
    assert finding.rows[0]["change"] is None


def test_a_straight_flow_scores_nothing_and_has_no_bend():
    found = straightness_of(Network(straight_flow, (6,), Flow(), "flow"), SMALL)
    assert found["score"].max() < 1e-7  # states are float32
    assert found["score_unnormalised"].max() < 1e-7
    assert found["bend"].max() < 1e-9


def test_a_turning_flow_has_the_bend_of_a_quarter_circle():
    found = straightness_of(Network(turning_flow, (2,), Flow(), "flow"), replace(SMALL, reference_steps=400))
    # The way is the chord of a quarter circle, |way|² = 2 r²; the speed is r·pi/2, and its mean is the way.
    assert found["bend"] == pytest.approx(np.full(4, (np.pi**2 / 4 - 2) / 2), rel=0.02)
    assert straightness_of(Network(turning_flow, (2,), Flow(), "flow"), SMALL)["score"].min() > 1e-4


def test_the_bend_is_the_spread_of_velocities_about_the_way():
    way = torch.tensor([[3.0, 4.0]])
    velocities = torch.tensor([[[3.0, 5.0], [3.0, 3.0], [5.0, 4.0]]])
    assert velocity_bend(way, velocities) == pytest.approx([(1 + 1 + 4) / 3 / 25])


def test_the_same_seed_trains_the_same_flow_bit_for_bit_whatever_was_drawn_before():
    setting = replace(SMALL, samples=2)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    answers = []
    for seed in (0, 0, 1):
        torch.rand(7)
        answers.append([flow(x, 300.0) for flow in digit_flows(setting, seed)])
    assert all(torch.equal(one, other) for one, other in zip(answers[0], answers[1], strict=True))
    assert not torch.equal(answers[0][0], answers[2][0])
    assert not torch.equal(answers[0][0], answers[0][1])


def test_the_small_network_is_told_the_time():
    network = VelocityNetwork(torch.Generator().manual_seed(0))
    x = torch.zeros(2, 1, 8, 8)
    together = network(x, torch.tensor([100.0, 900.0]))
    assert torch.allclose(together[0], network(x, 100.0)[0])
    assert not torch.allclose(together[0], together[1])


def test_one_round_of_reflow_straightens_the_small_flow(finding):
    bends = [row["bend"] for row in finding.rows if row["family"] == "digits"]
    assert bends[1] < 0.7 * bends[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([(-1.2, -0.8), (-1.2, -0.8)], HOLDS),
        ([(-1.2, -0.8), (0.4, 0.6)], IN_PART),
        ([(-0.2, 0.4), (0.4, 0.6)], FAILS),
    ],
)
def test_the_score_must_fall_with_every_round(changes, said):
    first = {"round": 0, **numbers_of("change", None, None, None)}
    later = [{"round": k, **numbers_of("change", sum(ends) / 2, *ends)} for k, ends in enumerate(changes, start=1)]
    assert word(REFLOW, "each round", {}, [first, *later]) == said


def test_rounds_of_one_model_do_not_change():
    model = Network(turning_flow, (2,), Flow(), "flow")
    rows = family_rows("digits", 0, [model, model], SMALL)
    assert [rows[1]["change"], rows[1]["change_low"], rows[1]["change_high"]] == [0, 0, 0]


def test_the_figure_is_drawn(finding):
    assert is_drawn(REFLOW.draw(finding))
