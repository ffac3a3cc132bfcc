"""All methods by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from geosprint.baselines import BASELINES, applicable_baselines
from geosprint.errors import ScheduleError
from geosprint.methods.base import Method, Task
from geosprint.methods.dm_nonuniform import DM_NONUNIFORM
from geosprint.methods.fitted import FITTED, TUNED_AND_FITTED
from geosprint.methods.gits import GITS, GITS_PLAIN
from geosprint.methods.ld3 import LD3_L2
from geosprint.methods.oss import OSS
from geosprint.methods.paper import GEOSPRINT, GEOSPRINT_LITERAL
from geosprint.methods.sdm import SDM
from geosprint.methods.sharp_euler import SHARP_EULER
from geosprint.methods.tuned import TUNED
from geosprint.methods.weighted_path import WEIGHTED_PATH


def _closed_form(name: str) -> Method:
    return Method(name, partial(_placed, name), source="closed form", applies=partial(_is_applicable, name))


def _placed(name: str, task: Task, steps: int) -> NDArray[np.float64]:
    return BASELINES[name](task.model.noise, steps)


def _is_applicable(name: str, task: Task) -> bool:
    return name in applicable_baselines(task.model.noise)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *(_closed_form(name) for name in BASELINES),
        DM_NONUNIFORM,
        GITS,
        GITS_PLAIN,
        OSS,
        SDM,
        SHARP_EULER,
        GEOSPRINT_LITERAL,
        GEOSPRINT,
        FITTED,
        WEIGHTED_PATH,
        TUNED,
        TUNED_AND_FITTED,
        LD3_L2,
    )
}


def chosen_methods(names: Sequence[str] | None, leave_out: Sequence[str], task: Task) -> list[Method]:
    """The methods of these names, or all that apply to the model but some, in the order of METHODS."""
    for name in names or ():
        if name not in METHODS:
            raise ScheduleError(f"methods must be among {', '.join(METHODS)}, got {name!r}")
        if not METHODS[name].applies(task):
            raise ScheduleError(f"{name} was not made for models like {task.model.name!r}; leave it out")
    if names:
        return [method for method in METHODS.values() if method.name in names]
    return [method for method in METHODS.values() if method.name not in leave_out and method.applies(task)]
