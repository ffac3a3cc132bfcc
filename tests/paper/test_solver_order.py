from dataclasses import replace

import numpy as np
import pytest
from drawn import is_drawn
from judging import difference, word
from toy import TOY

from geosprint.estimates import endpoint_errors
from geosprint.extraction import extract
from geosprint.models.exact import ring
from geosprint.paper.claims import FAILS, HOLDS, UNTESTED
from geosprint.paper.solver_order import SECOND_ORDER, SOLVER_ORDER
from geosprint.sampling import sample
from geosprint.schedule import build_schedule
from geosprint.teacher import fine_timesteps


@pytest.fixture(scope="module")
def finding():
    return SOLVER_ORDER.run(TOY)


@pytest.fixture(scope="module")
def errors():
    """RMSE of both solvers on our schedule and of the second order on a uniform one, at K = 8."""
    seeds = [seed for r in range(2) for seed in TOY.fresh_seeds(r)]
    ours = build_schedule(extract(ring(), 8, 30), 8).timesteps
    uniform = np.round(1000 - np.arange(8) * 125.0) - 1
    fine = sample(ring(), fine_timesteps(ring().noise, 20), seeds, "heun")
    cells = {"first": ("ddim", ours), "second": ("dpmpp-2m", ours), "default": ("dpmpp-2m", uniform)}
    return {
        name: endpoint_errors(sample(ring(), times, seeds, solver), fine) for name, (solver, times) in cells.items()
    }


def mean_of(finding, solver, schedule, steps, metric="rmse"):
    place = (solver, schedule, steps)
    return next(row[metric] for row in finding.rows if (row["solver"], row["schedule"], row["steps"]) == place)


def test_every_solver_is_on_our_schedule_and_on_its_default(finding):
    lines = {(row["solver"], row["schedule"]) for row in finding.rows}
    assert lines == {
        ("ddim", "geosprint"),
        ("dpmpp-2m", "uniform-trailing"),
        ("dpmpp-2m", "logsnr"),
        ("dpmpp-2m", "quadratic"),
        ("dpmpp-2m", "geosprint"),
        ("unipc", "uniform-trailing"),
        ("unipc", "geosprint"),
    }
    assert len(finding.rows) == 2 * len(lines)
    assert len({tuple(row) for row in finding.rows}) == 1


def test_rows_are_the_errors_of_these_solvers_at_these_steps(finding, errors):
    assert mean_of(finding, "ddim", "geosprint", 8) == pytest.approx(errors["first"].mean(), rel=1e-4)
    assert mean_of(finding, "dpmpp-2m", "geosprint", 8) == pytest.approx(errors["second"].mean(), rel=1e-4)
    assert mean_of(finding, "dpmpp-2m", "uniform-trailing", 8) == pytest.approx(errors["default"].mean(), rel=1e-4)


def test_gaps_are_first_order_less_second_and_ours_less_the_default(finding, errors):
    numbers = finding.numbers["rmse"]
    gap = (errors["first"] - errors["default"]).mean()
    assert numbers["gap_to_default"]["8"]["value"] == pytest.approx(gap, rel=1e-3)
    gain = (errors["second"] - errors["default"]).mean()
    assert numbers["our_schedule_minus_default"]["dpmpp-2m"]["8"]["value"] == pytest.approx(gain, rel=1e-3)


@pytest.mark.parametrize("metric", ["rmse", "frechet_fine"])
def test_the_best_schedule_of_the_second_order_has_the_smallest_mean(finding, metric):
    for k in (4, 8):
        means = {name: mean_of(finding, "dpmpp-2m", name, k, metric) for name in SECOND_ORDER["dpmpp-2m"]}
        best = min(means.values())
        assert means[finding.numbers[metric]["best_schedule"][str(k)]] == best
        gap = finding.numbers[metric]["gap_to_best"][str(k)]
        if metric == "rmse":
            assert gap["value"] == pytest.approx(mean_of(finding, "ddim", "geosprint", k) - best, rel=1e-6)


def made_up(steps, *ends):
    gaps = {steps: difference(*ends)}
    found = {"gap_to_default": gaps, "gap_to_best": gaps, "our_schedule_minus_default": {"unipc": gaps}}
    return {"rmse": found, "frechet_fine": found}


def test_the_claims_can_hold_and_fail():
    for text in ("outperforms DPM-Solver++", "on its best schedule", "second-order solvers gain"):
        assert word(SOLVER_ORDER, text, made_up("30", -2, -1)) == HOLDS
        assert word(SOLVER_ORDER, text, made_up("30", -1, 1)) == FAILS
    assert word(SOLVER_ORDER, "outperforms DPM-Solver++", made_up("20", -2, -1)) == UNTESTED  # NFE >= 30 was claimed


def test_flows_have_solvers_of_second_order_too():
    found = SOLVER_ORDER.run(replace(TOY, model="other_models:flow_ring", steps=(4,)))
    assert all(np.isfinite(row["rmse"]) for row in found.rows)
    assert len(found.rows) == 7


def test_the_figure_is_drawn(finding):
    assert is_drawn(SOLVER_ORDER.draw(finding))
