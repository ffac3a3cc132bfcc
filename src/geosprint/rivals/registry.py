"""Every published schedule by name: the rivals of a comparison, and where `tune` starts from."""

from __future__ import annotations

from geosprint.rivals.base import Method
from geosprint.rivals.dm_nonuniform import DM_NONUNIFORM
from geosprint.rivals.gits import GITS, GITS_PLAIN
from geosprint.rivals.ld3 import LD3_L2
from geosprint.rivals.local_errors import SDM, SHARP_EULER
from geosprint.rivals.oss import OSS
from geosprint.rivals.paper import GEOSPRINT, GEOSPRINT_LITERAL
from geosprint.rivals.weighted_path import WEIGHTED_PATH

RIVALS: dict[str, Method] = {
    method.name: method
    for method in (
        DM_NONUNIFORM,
        GITS,
        GITS_PLAIN,
        OSS,
        SDM,
        SHARP_EULER,
        GEOSPRINT_LITERAL,
        GEOSPRINT,
        WEIGHTED_PATH,
        LD3_L2,
    )
}
