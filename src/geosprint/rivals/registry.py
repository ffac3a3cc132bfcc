"""Every published schedule by name: the rivals of a comparison, and where `tune` starts from."""

from __future__ import annotations

from functools import partial

from geosprint.rivals import dyweight, neural_solver
from geosprint.rivals.base import Method
from geosprint.rivals.dm_nonuniform import dm_nonuniform
from geosprint.rivals.gits import gits
from geosprint.rivals.ld3 import ld3_l2
from geosprint.rivals.local_errors import sdm, sharp_euler
from geosprint.rivals.oss import oss
from geosprint.rivals.paper import geosprint
from geosprint.rivals.s4s import s4s_alt
from geosprint.rivals.weighted_path import weighted_path

_START = partial(Method, from_recording=True, is_start=True)
_LEARNT = partial(Method, from_teacher=True)  # steps in its own way, whatever the solver
_LIMIT = partial(Method, from_recording=True, from_teacher=True, for_solver=True, is_limit=True)

RIVALS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("dm-nonuniform", dm_nonuniform, "Xue et al. (2024)"),
        _START("gits", gits, "Chen et al. (2024)"),
        _START("gits-plain", partial(gits, decay=1.0), "Chen et al. (2024), coefficient 1"),
        _START("oss", oss, "Pei et al. (2025)"),
        _START("sdm", sdm, "Jo & Choi (2026)"),
        _START("sharp-euler", sharp_euler, "Gupta et al. (2026)"),
        Method("geosprint-literal", partial(geosprint, literal=True), "the paper", from_recording=True),
        Method("geosprint", geosprint, "the paper", from_recording=True),
        _START("weighted-path", weighted_path, "this package"),
        _LEARNT("s4s-alt", s4s_alt, "Frankel et al. (2025)"),
        _LEARNT("dyweight", dyweight.dyweight, "Zhao et al. (2026)", applies=dyweight.applies),
        _LEARNT("neural-solver", neural_solver.neural_solver, "Wang et al. (2025)", applies=neural_solver.applies),
        _LIMIT("ld3-l2", ld3_l2, "Tong et al. (2024)", applies=lambda task: task.solver != "ddpm"),
    )
}
