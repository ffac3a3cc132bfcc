"""Coefficients of their own for what guidance adds: `python -m benchmarks.guided_fit DIRECTORY` prints the table.

A guided step has two predictions: the conditional x0, and what guidance adds to it, (g - 1)·(conditional -
unconditional). Forms of a step, all with the same network calls, on the schedule that suits `joint` best:

    joint               coefficients of their sum, as `geosprint fit` has them
    split               coefficients of each, with earlier ones of each
    split, latest two   of what guidance adds, this one and the one before; `latest one`: this one alone
    every second        split; the unconditional prediction at every second step only, and more steps instead

Fits are stepwise. Errors are on held-out prompts and noise, at the guidance scale of the fit and at others.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from geosprint.baselines import closed_form_schedules
from geosprint.comparison.plan import FRESH_SEED
from geosprint.estimates import bootstrapped
from geosprint.fitted_solver import Coefficients, known_coefficients
from geosprint.fitting.config import FitConfig
from geosprint.fitting.fit import Lesson, best_suited
from geosprint.fitting.stepwise import bounded_fit, distances
from geosprint.integrations.adapter import PipelineModel, as_model
from geosprint.integrations.pipelines import PipelineInputs, load_pipeline
from geosprint.models.base import predict, x0_and_eps
from geosprint.models.spread import Spread
from geosprint.noise import CLEAN
from geosprint.teacher import TeacherTrajectories, record_teacher
from recipes.scenes.drawing import draw_up_scenes

FITTED_AT = 7.5
USED_AT = (5.0, 10.0)
HELD_OUT_SCENES = 10**9 + 1  # no training picture has a seed this high
CONFIG = FitConfig()
ORDER = CONFIG.order
Answer = tuple[Tensor, Tensor | None]
"""The conditional x0, and what guidance adds to it; None where that was not asked."""


@dataclass(frozen=True)
class Form:
    """What a step adds up beside the state."""

    looks_back: int = 0  # predictions of what guidance adds that have their own coefficients; 0: only the sum has
    every_second: bool = False

    def asked(self, guided_steps: int) -> list[bool]:
        """Of each step, whether the unconditional prediction is asked: two calls there, one elsewhere."""
        if not self.every_second:
            return [True] * guided_steps
        steps = round(4 * guided_steps / 3)
        return [i % 2 == 0 and i // 2 < 2 * guided_steps - steps for i in range(steps)]

    def parts(self, x: Tensor, answers: list[Answer]) -> list[Tensor]:
        """What the coefficients of a step multiply, after these answers."""
        conditional = [x0 for x0, _ in answers[::-1]]
        added = [more for _, more in answers[::-1] if more is not None]
        if not self.looks_back:
            return [x, *_with_differences([x0 + more for x0, more in zip(conditional, added, strict=True)][:ORDER])]
        return [x, *_with_differences(conditional[:ORDER]), *_with_differences(added[: self.looks_back])]

    def known(self, model: PipelineModel, times: list[float], asked: list[bool]) -> Coefficients:
        """DPM++ 2M in this form; where nothing new was asked, the last that guidance added is held."""
        rows = known_coefficients("dpmpp-2m", model.noise, times, ORDER)
        if not self.looks_back:
            return rows
        seen = np.minimum(np.cumsum(asked), self.looks_back)
        held = [(row[1], *(c if new else 0.0 for c in row[2:])) for row, new in zip(rows, asked, strict=True)]
        return tuple((*row, *again[:most]) for row, again, most in zip(rows, held, seen, strict=True))


JOINT = Form()
FORMS = {
    "split": Form(ORDER),
    "split, latest two": Form(2),
    "split, latest one": Form(1),
    "every second": Form(ORDER - 1, every_second=True),
}


def _with_differences(latest_first: list[Tensor]) -> list[Tensor]:
    return [latest_first[0], *(before - latest_first[0] for before in latest_first[1:])]


def answer(model: PipelineModel, x: Tensor, t: float, with_guidance: bool) -> Answer:
    """Ask a guided pipeline, whose network sees the unconditional batch and then the conditional one."""
    if not with_guidance:
        return predict(
            replace(model, inputs=replace(model.inputs, guidance_scale=1.0), seen=replace(model.seen, calls=1)), x, t
        ).x0, None
    outputs: list[Tensor] = []
    hook = model.network.register_forward_hook(lambda network, given, output: outputs.append(output[0]))
    try:
        guided = predict(model, x, t).x0
    finally:
        hook.remove()
    conditional, _ = x0_and_eps(model.prediction, x, outputs[-1].chunk(2)[1], *model.noise.signal_and_sigma(t))
    return conditional, guided - conditional


@dataclass(frozen=True)
class Student:
    """Few steps from the noise of the teacher trajectories."""

    form: Form
    model: PipelineModel  # of these trajectories
    teacher: TeacherTrajectories
    times: list[float]
    asked: list[bool]

    @classmethod
    def of(cls, form: Form, model: PipelineModel, teacher: TeacherTrajectories, times, guided_steps: int) -> Student:
        return cls(form, model.for_samples(teacher.rows), teacher, [*map(float, times)], form.asked(guided_steps))

    def at(self, chosen: slice) -> Student:
        """On some of the trajectories."""
        teacher = self.teacher.at(chosen)
        return replace(self, model=self.model.for_samples(range(len(self.teacher))[chosen]), teacher=teacher)

    @property
    def known(self) -> Coefficients:
        return self.form.known(self.model, self.times, self.asked)

    def fitted(self) -> Coefficients:
        """Step by step, as fitting/stepwise.py does it."""
        x, answers, found = self.teacher.starts, [], []
        for i, (t_next, known) in enumerate(zip([*self.times[1:], CLEAN], self.known, strict=True)):
            answers.append(self.answer(i, x))
            parts = torch.stack(self.form.parts(x, answers))
            target = self.teacher.ends if t_next == CLEAN else self.teacher.state_at(t_next)
            more = bounded_fit(parts.flatten(2), (target - _sum(known, parts)).flatten(1), CONFIG)
            found.append(tuple((np.array(known) + more).tolist()))
            x = _sum(found[-1], parts)
        return tuple(found)

    def answer(self, step: int, x: Tensor) -> Answer:
        return answer(self.model, x, self.times[step], self.asked[step])

    def walked(self, numbers: Coefficients) -> tuple[list[Tensor], list[Answer]]:
        """Every state, the end included, and every answer."""
        states, answers = [self.teacher.starts], []
        for i, own in enumerate(numbers):
            answers.append(self.answer(i, states[-1]))
            states.append(_sum(own, self.form.parts(states[-1], answers)))
        return states, answers

    def errors(self, numbers: Coefficients):
        """Root mean square error of each end."""
        return distances(self.walked(numbers)[0][-1], self.teacher.ends)


def _sum(coefficients, parts) -> Tensor:
    return sum(c * part for c, part in zip(coefficients, parts, strict=True))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="of a pipeline that draws scenes, or `scenes`, the one in the box")
    parser.add_argument("--steps", type=int, nargs="+", default=[6, 8, 10, 12], help="guided steps, of two calls each")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["split", "every second"], help="beside joint")
    parser.add_argument("--seeds", type=int, default=3, help="fits, each to prompts and noise of its own")
    parser.add_argument("--trajectories", type=int, default=48, help="of the teacher, for each fit")
    parser.add_argument("--held-out", type=int, default=64, help="trajectories that errors are measured on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pipe = load_pipeline(options.directory)

    def taught(scenes_seed: int, first_seed: int, count: int, guidance: float):
        prompts = [scene.caption for scene in draw_up_scenes(count, scenes_seed)]
        model = as_model(pipe, PipelineInputs(prompts, guidance_scale=guidance))
        return model, record_teacher(Spread(model), range(first_seed, first_seed + count))

    lessons = [taught(seed, 1000 * seed, options.trajectories, FITTED_AT) for seed in range(options.seeds)]
    exams = {g: taught(HELD_OUT_SCENES, FRESH_SEED, options.held_out, g) for g in (FITTED_AT, *USED_AT)}

    @cache
    def best_times(steps: int):
        model, teacher = lessons[0]
        schedules = closed_form_schedules(model.noise, steps)
        return best_suited(Lesson(Spread(model), teacher), schedules, CONFIG.screened_on)[0].timesteps

    print("| calls | form | " + " | ".join(f"RMSE at {g:g} | over joint" for g in exams) + " |")
    print("|---:|---|" + "---:|" * 2 * len(exams))
    for guided_steps in options.steps:
        joint = {}
        for name, form in [("joint", JOINT), *((name, FORMS[name]) for name in options.forms)]:
            times = best_times(len(form.asked(guided_steps)))
            students = [Student.of(form, *lesson, times, guided_steps) for lesson in lessons]
            found, cells = [student.fitted() for student in students], []
            for guidance, exam in exams.items():
                student = Student.of(form, *exam, times, guided_steps)
                errors = np.mean([student.errors(own) for own in found], axis=0)
                base = joint.setdefault(guidance, errors)
                ratio = bootstrapped(lambda rows, e=errors, b=base: e[rows].mean() / b[rows].mean(), len(errors))
                cells += [f"{errors.mean():.4f}", str(ratio)]
            print(f"| {2 * guided_steps} | {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
