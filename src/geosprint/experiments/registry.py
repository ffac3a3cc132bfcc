"""All experiments by name, in the order of the paper."""

from __future__ import annotations

from geosprint.experiments.base import Experiment
from geosprint.experiments.blend import BLEND
from geosprint.experiments.budget import BUDGET
from geosprint.experiments.convergence import CONVERGENCE
from geosprint.experiments.fid_vs_nfe import FID_VS_NFE
from geosprint.experiments.guidance import GUIDANCE
from geosprint.experiments.leading import LEADING
from geosprint.experiments.overhead import OVERHEAD
from geosprint.experiments.per_sample import PER_SAMPLE
from geosprint.experiments.reflow import REFLOW
from geosprint.experiments.solver_order import SOLVER_ORDER
from geosprint.experiments.straightness import STRAIGHTNESS
from geosprint.experiments.where import WHERE
from geosprint.experiments.window import WINDOW

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        FID_VS_NFE,
        LEADING,
        SOLVER_ORDER,
        BUDGET,
        BLEND,
        WINDOW,
        STRAIGHTNESS,
        REFLOW,
        WHERE,
        CONVERGENCE,
        PER_SAMPLE,
        GUIDANCE,
        OVERHEAD,
    )
}
