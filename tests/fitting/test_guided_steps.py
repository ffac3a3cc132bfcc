"""Coefficients of their own for what guidance adds: the formula, the fit, and what is left to who is not told."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import geosprint
from geosprint import FittedSolver
from geosprint.baselines import baseline_schedule
from geosprint.errors import ScheduleError
from geosprint.estimates import endpoint_errors
from geosprint.fitted_solver import known_coefficients, stepped
from geosprint.fitting.config import FitConfig
from geosprint.fitting.refinement import Refined, moves_of, refine
from geosprint.fitting.stepwise import asking, stepwise_fit, student_trajectories
from geosprint.models.base import Network
from geosprint.models.spread import Spread
from geosprint.noise import DiscreteVP
from geosprint.sampling import sample
from geosprint.teacher import FINE_SOLVER, fine_timesteps, record_teacher
from geosprint.tuned import Tuned, as_tuned

NOISE = DiscreteVP.named()
TIMES = [999.0, 650.0, 300.0, 80.0]
ROWS = ((0.9, 0.1, 0.4), (0.6, 0.3, -0.2, -0.1, 0.2), (0.4, 0.5, 0.1), (0.05, 0.9, 0.3, -0.4, 0.1, 0.2, -0.3))
JOINT = ((0.9, 0.1), (0.6, 0.3, -0.1), (0.4, 0.5), (0.05, 0.9, -0.4, 0.2))


@dataclass(frozen=True, eq=False)
class GuidedGaussians(Network):
    """Exact: unconditional and conditional normal data of other means and spreads in every dimension, guidance 2."""

    both: bool = False

    def with_conditional(self):
        return replace(self, both=True)

    def __call__(self, x, t):
        a, s = self.noise.signal_and_sigma(t)
        random = np.random.default_rng(3)
        means, spreads = random.normal(0, 0.5, (2, 12)), random.uniform(0.6, 1.0, (2, 12))
        free, conditional = (
            torch.tensor(m + a * v**2 / (a**2 * v**2 + s**2) * (x.double().numpy() - a * m), dtype=x.dtype)
            for m, v in zip(means, spreads, strict=True)
        )
        guided = free + 2 * (conditional - free)
        return torch.stack([guided, conditional], dim=1) if self.both else guided


def model():
    return GuidedGaussians(lambda x, t: x, (12,), NOISE, "x0", calls=2, name="gaussians")


def solver(guided=ROWS, joint=JOINT):
    return FittedSolver(geosprint.StepSchedule.at(TIMES, NOISE, {"method": "by hand"}), joint, guided)


def test_the_formula_by_hand():
    x, x0, added, before, added_before = (torch.tensor(float(n)) for n in (2, 3, 7, 5, 11))
    assert float(stepped(x, (x0, added), [], (0.5, 0.25, 0.1))) == pytest.approx(0.5 * 2 + 0.25 * 3 + 0.1 * 7)
    found = stepped(x, (x0, added), [(before, added_before)], (0.5, 0.25, 0.1, 10.0, 100.0))
    assert float(found) == pytest.approx(2.45 + 10 * (5 - 3) + 100 * (11 - 7))


def test_a_walk_takes_the_steps_of_the_formula_by_hand():
    expected, past = torch.randn(1, 12, generator=torch.Generator().manual_seed(5)), []
    for t, (of_x, *rest) in zip(TIMES, ROWS, strict=True):
        guided, conditional = model().with_conditional()(expected, t).unbind(1)
        now = np.array([guided.numpy(), (guided - conditional).numpy()])
        differences = [now, *(before - now for before in past[::-1])]
        pairs = np.array(rest).reshape(-1, 2)
        expected = of_x * expected + sum(
            torch.tensor(np.tensordot(c, part, 1)) for c, part in zip(pairs, differences, strict=False)
        )
        past.append(now)
    torch.testing.assert_close(sample(model(), solver(), [5]), expected.float(), rtol=1e-5, atol=1e-5)


def test_who_is_not_told_takes_the_other_coefficients_with_a_word_about_it():
    silent = Network(model(), (12,), NOISE, "x0", calls=2, name="silent")
    with pytest.warns(UserWarning, match="conditional prediction is not known here"):
        found = sample(silent, solver(), [5, 6])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(found, sample(silent, solver(guided=()), [5, 6]))
    assert (found - sample(model(), solver(), [5, 6])).abs().max() > 0.1


def test_one_step_of_a_fit_is_least_squares_over_both_parts():
    teacher = record_teacher(Spread(model()), [3, 4]).at(slice(0, 1))
    ask, config = asking(Spread(model()).with_conditional(), teacher.rows), FitConfig(order=2, ridge=1e-12)
    found = stepwise_fit(ask, teacher, [999.0, 400.0], config)
    guided, conditional = model().with_conditional()(teacher.starts, 999.0).unbind(1)
    parts = torch.stack([teacher.starts, guided, guided - conditional]).flatten(1).double().numpy()
    target = teacher.state_at(400.0).flatten().double().numpy()
    expected = np.linalg.lstsq(parts.T, target, rcond=None)[0]
    np.testing.assert_allclose(found.coefficients[0], expected, rtol=1e-3, atol=1e-4)
    assert [len(own) for own in found.coefficients] == [3, 5]


def test_a_fit_with_them_has_a_lower_error_and_refining_keeps_what_they_are():
    teacher, exam = (record_teacher(Spread(model()), seeds) for seeds in (range(24), range(100, 124)))
    both, plain = Spread(model()).with_conditional(), Spread(model())
    config = FitConfig(order=2, moved_times=0)
    fits = [stepwise_fit(asking(some, teacher.rows), teacher, TIMES, config) for some in (both, plain)]
    split, joint = (fit.coefficients for fit in fits)
    errors = [
        student_trajectories(asking(some, exam.rows), exam.starts, TIMES, numbers).errors(exam).mean()
        for some, numbers in ((both, split), (plain, joint))
    ]
    assert errors[0] < 0.9 * errors[1]
    assert {move.index for move in moves_of(fits[0], NOISE, config)} == {0, 1, 3}
    refined = refine(both, teacher, Refined(fits[0], fits[0].errors(teacher)), 10**6, config).student
    assert [own[2::2] for own in refined.coefficients] == [own[2::2] for own in split]
    assert refined.coefficients != split


def test_a_known_solver_has_nothing_for_what_guidance_adds():
    plain, guided = (known_coefficients("dpmpp-2m", NOISE, TIMES, 3, guided) for guided in (False, True))
    assert [own[:1] + own[1::2] for own in guided] == list(plain)
    assert not any(c for own in guided for c in own[2::2])


def test_fit_uses_them_for_guided_models_and_saves_both(tmp_path):
    fitted = geosprint.fit(model(), 3, baseline_schedule("kl-optimal", NOISE, 3), budget_nfe=8000, progress=False)
    made = fitted[3]
    assert [len(own) for own in made.guided] == [3, 5, 7]
    assert [len(own) for own in made.coefficients] == [2, 3, 4]
    fine = sample(model(), fine_timesteps(NOISE, 60), range(200, 232), FINE_SOLVER)
    told, not_told = (
        endpoint_errors(sample(model(), FittedSolver(made.schedule, made.coefficients, rows), range(200, 232)), fine)
        for rows in (made.guided, ())
    )
    assert told.mean() < 0.9 * not_told.mean()
    again = Tuned.load(fitted.save(tmp_path / "tuned.json"))[3]
    assert (again.guided, again.coefficients) == (made.guided, made.coefficients)
    torch.testing.assert_close(sample(model(), again, [1]), sample(model(), made, [1]))
    assert geosprint.fit(Network(model(), (12,), NOISE, "x0"), 2, budget_nfe=4000, progress=False)[2].guided == ()


def test_a_file_of_an_earlier_version_has_none(tmp_path):
    import json

    path = as_tuned(solver()).save(tmp_path / "tuned.json")
    content = json.loads(path.read_text())
    for one in content["results"]:
        del one["guided"]
    path.write_text(json.dumps(content))
    assert Tuned.load(path)[4].guided == ()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (((0.9, 0.1), *ROWS[1:]), "step 1 can have 3 coefficients, got 2"),
        ((ROWS[0], (0.6, 0.3, -0.2, -0.1), *ROWS[2:]), "step 2 can have 3 or 5 coefficients, got 4"),
        (ROWS[:3], "4 steps need as many lists of coefficients, got 3"),
    ],
)
def test_rows_of_the_wrong_length_are_refused(rows, message):
    with pytest.raises(ScheduleError, match=message):
        solver(guided=rows)
