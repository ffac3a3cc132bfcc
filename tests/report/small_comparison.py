"""The comparison that the tests of the report look at."""

from geosprint.comparison.plan import Plan

PLAN = Plan(
    steps=(4, 6),
    methods=("uniform-trailing", "uniform-linspace", "karras", "gits", "geosprint"),
    samples=12,
    trajectories=4,
    reference_steps=24,
    fine_steps=20,
    ruler=(9,),
)
COMMAND = "geosprint compare digits --steps 4,6"
