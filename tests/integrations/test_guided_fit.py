"""Separate coefficients for what guidance adds, beside the fits of the package and the pipeline's own answers."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from benchmarks.guided_fit import FORMS, JOINT, Student, answer, main
from geosprint import teacher as teacher_trajectories
from geosprint.baselines import baseline_schedule
from geosprint.fitting.config import FitConfig
from geosprint.fitting.stepwise import asking, stepwise_fit
from geosprint.integrations.adapter import as_model
from geosprint.integrations.pipelines import PipelineInputs
from geosprint.models.base import predict
from geosprint.models.spread import Spread
from geosprint.teacher import record_teacher
from integrations import tiny_pipelines

STEPS = 2


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return as_model(tiny_pipelines.sd15(), PipelineInputs(tiny_pipelines.PROMPTS, guidance_scale=4.0))


@pytest.fixture(scope="module")
def teacher(model):
    return record_teacher(Spread(model), range(12))


@pytest.fixture(scope="module")
def times(model):
    return baseline_schedule("beta", model.noise, STEPS).timesteps


def test_an_answer_is_the_conditional_prediction_and_what_guidance_adds_to_it(model):
    some, x, t = model.for_samples(range(2)), torch.randn(2, *model.shape), 500.0
    conditional, added = answer(some, x, t, with_guidance=True)
    alone, nothing = answer(some, x, t, with_guidance=False)
    assert nothing is None
    assert torch.allclose(conditional, alone, atol=1e-4)
    assert torch.allclose(conditional + added, predict(some, x, t).x0, atol=1e-4)
    assert float(added.abs().max()) > 1e-3


@pytest.mark.parametrize("guided_steps", range(3, 25))
def test_every_form_makes_two_calls_for_each_guided_step(guided_steps):
    for form in (JOINT, *FORMS.values()):
        asked = form.asked(guided_steps)
        assert len(asked) + sum(asked) == 2 * guided_steps
        assert asked[0]


def test_the_joint_form_is_fitted_as_by_the_package(model, teacher, times):
    student, counted = Student.of(JOINT, model, teacher, times, STEPS), Spread(model)
    stepwise = stepwise_fit(asking(counted, teacher.rows), teacher, times, FitConfig()).coefficients
    assert np.allclose(np.concatenate(student.fitted()), np.concatenate(stepwise), atol=1e-3)


def test_the_split_form_with_equal_coefficients_is_the_joint_form(model, teacher, times):
    joint, split = (Student.of(form, model, teacher, times, STEPS) for form in (JOINT, FORMS["split"]))
    numbers = joint.fitted()
    both = tuple((*own, *own[1:]) for own in numbers)
    assert np.allclose(split.errors(both), joint.errors(numbers), atol=1e-5)
    assert split.known == tuple((*own, *own[1:]) for own in joint.known)


def test_without_a_new_prediction_the_last_that_guidance_added_is_held(model, teacher):
    form = FORMS["every second"]
    times = baseline_schedule("beta", model.noise, len(form.asked(3))).timesteps
    student = Student.of(form, model, teacher, times, guided_steps=3)
    assert student.asked == [True, False, True, False]
    states, answers = student.walked(student.known)
    held = [answers[0], (answers[1][0], answers[0][1]), answers[2], (answers[3][0], answers[2][1])]
    for i, own in enumerate(JOINT.known(model, student.times, student.asked)):
        following = sum(c * part for c, part in zip(own, JOINT.parts(states[i], held[: i + 1]), strict=True))
        assert torch.allclose(states[i + 1], following, atol=1e-4)


@pytest.mark.slow
def test_the_table_has_every_form_at_every_guidance_scale(tmp_path, monkeypatch, capsys):
    tiny_pipelines.sd15().save_pretrained(tmp_path)
    few = {"--steps": 2, "--seeds": 1, "--trajectories": 9, "--held-out": 3}
    small = [str(one) for option in few.items() for one in option]
    monkeypatch.setattr(sys, "argv", ["guided_fit", str(tmp_path), *small, "--forms", "split"])
    monkeypatch.setattr(teacher_trajectories, "STEPS", 10)
    main()
    header, _, *rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[:2] for row in rows] == [["4", form] for form in ("joint", "split")]
    assert [title for title in header if title.startswith("RMSE")] == ["RMSE at 7.5", "RMSE at 5", "RMSE at 10"]
    for row in rows:
        for error, ratio, joint in zip(row[2::2], row[3::2], rows[0][2::2], strict=True):
            assert float(ratio.split()[0]) == pytest.approx(float(error) / float(joint), rel=0.01)
