from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import numbers_of, word
from toy import TOY

from geosprint.errors import ModelError
from geosprint.extraction import extract
from geosprint.integrations.adapter import load_model
from geosprint.models.networks import load_pretrained
from geosprint.paper.base import Setting
from geosprint.paper.claims import FAILS, HOLDS, IN_PART
from geosprint.paper.guidance import GUIDANCE, SCALES, affordable, correlation_of_halves
from geosprint.sampling import sample
from geosprint.schedule import build_schedule
from geosprint.teacher import fine_timesteps

SMALL = Setting("fashion", trajectories=6, reference_steps=20, samples=3, fine_steps=30)


@pytest.fixture(scope="module")
def finding():
    return GUIDANCE.run(SMALL)


def cell(finding, made, used):
    return next(row for row in finding.rows if (row["made_at"], row["used_at"]) == (made, used))


def test_a_model_without_classes_is_refused():
    with pytest.raises(ModelError, match="such as fashion, or a pipeline such as scenes; 'mixture' takes no"):
        GUIDANCE.run(TOY)


def test_a_pipeline_is_asked_at_every_scale(monkeypatch):
    monkeypatch.setattr("geosprint.paper.guidance.SCALES", (1.0, 4.0))
    monkeypatch.setattr("geosprint.paper.guidance.STEPS", 4)
    found = GUIDANCE.run(Setting("scenes", trajectories=8, reference_steps=40, samples=8, fine_steps=12))
    assert [(row["made_at"], row["used_at"]) for row in found.rows] == [(1, 1), (4, 1), (1, 4), (4, 4)]
    assert cell(found, 1, 1)["rmse"] != pytest.approx(cell(found, 4, 4)["rmse"], rel=0.05)


def test_there_is_a_row_for_every_pair_of_scales_and_it_says_how_small_it_is(finding):
    assert [(row["made_at"], row["used_at"]) for row in finding.rows] == [(a, b) for b in SCALES for a in SCALES]
    assert {tuple(row) for row in finding.rows} == {tuple(finding.rows[0])}
    sizes = {(row["trajectories"], row["reference_steps"], row["samples"], row["fine_steps"]) for row in finding.rows}
    assert sizes == {(3, 10, 3, 10)}


def test_the_quick_size_is_affordable():
    size = affordable(Setting())
    calls = 1 + 2 + 2 + 2  # of the four scales
    recording = calls * size.trajectories * size.reference_steps
    drawing = calls * size.samples * (4 * 10 + 2 * size.fine_steps - 1)
    assert recording + drawing < 25_000


def test_a_scale_agrees_with_itself(finding):
    for scale in SCALES:
        row = cell(finding, scale, scale)
        assert [row["jaccard"], row["fuzzy_jaccard"]] == [1, 1]
        assert [row["correlation"], row["relative"], row["relative_low"]] == pytest.approx([1, 1, 1])


def test_a_foreign_schedule_costs_what_drawing_with_it_shows(finding):
    made, used = 1.0, 5.0
    times = build_schedule(extract(load_pretrained("fashion", labels=[0, 1, 2], guidance=made), 3, 10), 10).timesteps
    own = build_schedule(extract(load_pretrained("fashion", labels=[0, 1, 2], guidance=used), 3, 10), 10).timesteps
    model = load_pretrained("fashion", labels=[0, 1, 2], guidance=used)
    seeds = SMALL.fresh_seeds()
    fine = sample(model, fine_timesteps(model.noise, 10), seeds, "heun").double().numpy()
    errors = [
        np.sqrt(((sample(model, steps, seeds).double().numpy() - fine) ** 2).mean(axis=(1, 2, 3))).mean()
        for steps in (times, own)
    ]
    assert errors[0] != pytest.approx(errors[1], rel=1e-3)  # two schedules, so that a mix-up shows
    row = cell(finding, made, used)
    assert row["rmse"] == pytest.approx(errors[0], rel=1e-4)
    assert row["relative"] == pytest.approx(errors[0] / errors[1], rel=1e-4)


def test_halves_tell_profiles_of_one_kind_from_those_of_another():
    profile = extract(load_model("mixture"), 12, 30)
    random = np.random.default_rng(0)
    early, late = (random.uniform(size=(12, 31)) < np.linspace(*ends, 31) for ends in ((0.9, 0.1), (0.1, 0.9)))
    one, other = (replace(profile, kept=kept | (np.arange(31) < 2)) for kept in (early, late))
    assert correlation_of_halves(one, one) > 0.5
    assert correlation_of_halves(one, other) < -0.5
    same = replace(profile, kept=np.tile(one.kept[:1], (12, 1)))
    assert correlation_of_halves(same, same) == pytest.approx(1)


def test_profiles_of_two_scales_are_held_against_those_of_one():
    for across, said in ((0.8, HOLDS), (0.5, IN_PART), (0.1, FAILS)):
        numbers = {"halves_correlation_across": across, "halves_correlation_within": 0.8}
        assert word(GUIDANCE, "profiles of two scales", numbers) == said


def test_the_claim_can_hold_and_fail():
    def rows(*relatives):
        return [{"made_at": 0, "used_at": k, **numbers_of("relative", *found)} for k, found in enumerate(relatives, 1)]

    worse, no_worse = (1.2, 1.1, 1.3), (1.0, 0.9, 1.1)
    assert word(GUIDANCE, "guidance scale", {}, rows(no_worse, no_worse)) == HOLDS
    assert word(GUIDANCE, "guidance scale", {}, rows(no_worse, worse)) == IN_PART
    assert word(GUIDANCE, "guidance scale", {}, rows(worse, worse)) == FAILS


def test_the_figure_is_drawn(finding):
    assert is_drawn(GUIDANCE.draw(finding))
