"""Every published schedule by name: the rivals of a comparison, and where `tune` starts from."""

from __future__ import annotations

from functools import partial

from geosprint.rivals.base import Method
from geosprint.rivals.dm_nonuniform import dm_nonuniform
from geosprint.rivals.gits import gits
from geosprint.rivals.ld3 import ld3_l2
from geosprint.rivals.local_errors import sdm, sharp_euler
from geosprint.rivals.oss import oss
from geosprint.rivals.paper import geosprint
from geosprint.rivals.weighted_path import weighted_path

_START = partial(Method, from_recording=True, is_start=True)
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
        _LIMIT("ld3-l2", ld3_l2, "Tong et al. (2024)", applies=lambda task: task.solver != "ddpm"),
    )
}
