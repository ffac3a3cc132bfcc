"""Tuning from end to end: teacher trajectories, today's error, then one number of steps after another."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from geosprint.baselines import closed_form_schedules
from geosprint.call_cache import caching_calls
from geosprint.errors import ScheduleError
from geosprint.integrations.adapter import as_model
from geosprint.models.base import Model, ask
from geosprint.models.fingerprint import made_for
from geosprint.models.spread import Spread, shared_size
from geosprint.models.wrappers import Shown, require_repeatable
from geosprint.runs import BATCH
from geosprint.runs.progress import Progress
from geosprint.runs.team import this_team
from geosprint.schedule import StepSchedule
from geosprint.teacher import BUDGET, TeacherSets
from geosprint.tuned import FITTED, Tuned
from geosprint.tuning.config import DEFAULT
from geosprint.tuning.deciding import Yardstick
from geosprint.tuning.fewest import fewest_steps, proved_number, tuned_for_each
from geosprint.tuning.problem import RMSE, TuningProblem
from geosprint.tuning.today import todays_run
from geosprint.tuning.wish import Wish

if TYPE_CHECKING:
    from geosprint.integrations.pipelines import PipelineInputs


def tune(
    model: Model | Any,
    steps: int | Sequence[int] | None = None,
    *,
    today: str | None = None,
    solver: str = FITTED,
    target_error: float | None = None,
    budget_nfe: int = BUDGET,
    measure: str = RMSE,
    against: StepSchedule | None = None,
    prompts: Sequence[str] | None = None,
    inputs: PipelineInputs | None = None,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool = True,
    work: Path | None = None,
) -> Tuned:
    """The fewest steps that are as good as today's, where and how to step found together, proved on held-out noise.

    Today is what the pipeline runs, else 50 uniform steps of DDIM or Euler, or what you describe ("dpmpp-2m:25").
    `steps` asks for these numbers of steps instead, `target_error` for this error instead of today's. A known solver
    is kept, and only where to step is tuned. `measure` is rmse or the name of features (`load_features`) whose distance
    counts. `against` is a schedule of yours for the kept solver, which must be beaten too. `prompts` or `inputs` are
    what a pipeline draws. All numbers of steps share `budget_nfe` network calls. `work` is a directory that keeps the
    network's outputs: after a kill, the same call goes on and ends with the same result.
    """
    asked = as_model(model, _inputs(prompts, inputs))
    wanted = (steps,) if isinstance(steps, int) else tuple(sorted(set(steps or ())))
    run = todays_run(asked, today)
    wish = Wish(wanted, run, solver, target_error, measure, against, (), DEFAULT.fit.order, budget_nfe, seed, batch)
    return _tuned(asked, wish, "tune", progress, work)


def fit(
    model: Model | Any,
    steps: int,
    schedule: StepSchedule | None = None,
    *,
    today: str | None = None,
    order: int = DEFAULT.fit.order,
    budget_nfe: int = BUDGET,
    prompts: Sequence[str] | None = None,
    inputs: PipelineInputs | None = None,
    seed: int = 0,
    batch: int = BATCH,
    progress: bool = True,
    work: Path | None = None,
) -> Tuned:
    """How to step alone: a solver of K steps fitted on this schedule, or on the closed form that suits it best.

    A step looks at `order` predictions. The proof and the other options are those of `tune`.
    """
    asked = as_model(model, _inputs(prompts, inputs))
    places = (schedule,) if schedule else tuple(closed_form_schedules(asked.noise, steps))
    run = todays_run(asked, today)
    wish = Wish((steps,), run, FITTED, None, RMSE, None, places, order, budget_nfe, seed, batch)
    return _tuned(asked, wish, "fit", progress, work)


def _tuned(asked: Model, wish: Wish, verb: str, progress: bool, work: Path | None) -> Tuned:
    wish.check(asked, DEFAULT)
    require_repeatable(asked, wish.batch)
    team, own_calls = this_team(), wish.budget_nfe // this_team().size
    if progress and team.leads:
        print(cost_notice(asked, wish.budget_nfe, wish.batch), file=sys.stderr, flush=True)
    with (
        caching_calls(asked, work, {verb: wish.to_dict()}) as known,
        Progress(f"{verb}, at most", own_calls, "call", progress) as bar,
    ):
        counted = Spread(Shown(known, bar), batch=wish.batch)
        bar.say("teacher")
        teacher = TeacherSets.recorded(counted, wish.budget_nfe, wish.seed, DEFAULT.teacher)
        problem = TuningProblem.of(counted, teacher, wish.measure, DEFAULT)
        bar.say(str(wish.today.today))
        yardstick = Yardstick.measured(problem, wish.today, wish.target_error)
        found = (tuned_for_each if wish.steps else fewest_steps)(problem, wish, yardstick, bar)
        bar.update(max(own_calls - bar.done, 0))  # what was not needed
    ordered = tuple(sorted((one.result for one in found), key=lambda one: one.steps))
    proved = proved_number(found, yardstick)
    about = (wish.measure, made_for(asked), wish.seed, counted.nfe, wish.target_error)
    return Tuned(ordered, wish.today.today, proved, *about)


def cost_notice(model: Model, budget_nfe: int, batch: int) -> str:
    """What the whole command will cost at most, by two timed calls of a batch as most of them are."""
    batch = shared_size(batch, DEFAULT.teacher.counts(budget_nfe, model.calls)[0])
    starts, some = torch.zeros(batch, *model.shape, device=model.device), model.for_samples(range(batch))
    seconds = 0.0
    for _ in range(2):  # the first one warms up
        begun = time.perf_counter()
        with torch.no_grad():
            float(ask(some, starts, model.noise.first).sum())  # waits for the device
        seconds = time.perf_counter() - begun
    processes = this_team().size
    whole = timedelta(seconds=max(round(seconds * budget_nfe / (batch * model.calls * processes)), 1))
    where = f"{model.device}" if processes == 1 else f"{processes} × {model.device.type}, if all are always busy"
    return f"at most {budget_nfe:,} network calls, about {whole} on {where}"


def _inputs(prompts: Sequence[str] | None, inputs: PipelineInputs | None) -> PipelineInputs | None:
    if prompts is None:
        return inputs
    if inputs is not None:
        raise ScheduleError("give either prompts or inputs, one of the two: inputs hold prompts too")
    from geosprint.integrations.pipelines import PipelineInputs

    return PipelineInputs(tuple(prompts))
