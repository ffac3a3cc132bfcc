import numpy as np
import pytest
from drawn import is_drawn
from toy import TOY

from geosprint.paper.base import PaperFinding
from geosprint.paper.figures import TIME_LABEL, Panel, drawn, series_of


def rows(**columns):
    """A table from its columns."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def figure_of(*panels, table, **numbers):
    return drawn(panels, PaperFinding("where", TOY, table, numbers, ""))


def test_rows_of_one_x_are_a_point_with_their_mean_and_standard_deviation():
    table = rows(x=[1, 2, 1, 2], y=[3.0, 8.0, 5.0, 8.0])
    for kind in ("lines", "bars"):
        (line,) = series_of(Panel("x", "y", "x", "y", kind=kind), table)
        assert line.x == [1, 2]
        assert [(found.value, found.low, found.high) for found in line.found] == [(4, 3, 5), (8, 8, 8)]
    (dots,) = series_of(Panel("x", "y", "x", "y", kind="dots"), table)
    assert (dots.x, [found.value for found in dots.found]) == ([1, 2, 1, 2], [3, 8, 5, 8])


def test_an_interval_is_that_of_its_columns():
    measured = rows(x=[1], y=[4.0], y_low=[3.0], y_high=[9.0], y_std=[7.0])
    repeated = rows(x=[1, 2], y=[4.0, 5.0], y_std=[0.5, 1.0])
    unknown = rows(x=[1], y=[4.0], y_std=[None])
    found = [series_of(Panel("x", "y", "x", "y"), table)[0].found for table in (measured, repeated, unknown)]
    assert [(one.low, one.high) for some in found for one in some] == [(3, 9), (3.5, 4.5), (4, 6), (4, 4)]


def test_every_column_and_every_value_is_a_series_of_its_own_look():
    table = rows(x=[1, 1, 1, 1], steps=[5, 5, 10, 10], solver=["a", "b", "a", None], y=[1, 2, 3, 4], z_2=[5, 6, 7, 8])
    found = series_of(Panel("x", "y", "x", "y", by=("steps", "solver")), table)
    assert [one.name for one in found] == ["K = 5, a", "K = 5, b", "K = 10, a", "K = 10"]
    looks = [one.look for one in found]
    assert looks[0]["color"] == looks[1]["color"] != looks[2]["color"]  # colours tell K
    assert looks[0]["ls"] == looks[2]["ls"] != looks[1]["ls"]  # dashes tell solvers
    several = series_of(Panel("x", ("y", "z_2"), "x", "y", by=("steps",)), table)
    assert [one.name for one in several] == ["y, K = 5", "y, K = 10", "z 2, K = 5", "z 2, K = 10"]
    assert [[one.value for one in some.found] for some in several] == [[1.5], [3.5], [5.5], [7.5]]


TABLE = rows(x=["one", "two"], steps=[5, 10], y=[0.1, 200.0], y_low=[0.05, 100.0], y_high=[0.2, 300.0])


def panel(kind, log="", **options):
    return Panel("x" if kind != "lines" else "steps", "y", "x", "y", by=("steps",), kind=kind, log=log, **options)


@pytest.mark.parametrize("kind", ["lines", "dots", "bars", "histograms"])
@pytest.mark.parametrize("log", ["", "y"])
def test_every_kind_of_panel_is_drawn(kind, log):
    assert is_drawn(figure_of(panel(kind, log), panel(kind, log, level=1), table=TABLE))


def test_intervals_are_drawn_where_they_are():
    (axes,) = figure_of(panel("dots", "y"), table=TABLE).axes
    ends = {tuple(segment[:, 1]) for lines in axes.collections for segment in lines.get_segments()}
    assert ends == {(0.05, 0.2), (100, 300)}
    assert axes.get_yscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["one", "two"]


def test_a_panel_draws_the_rows_it_asks_for_and_none_of_what_was_not_measured():
    table = rows(part=["a", "b"], x=[1, 2], y=[3.0, 4.0], unknown=[None, 5.0])
    asked = Panel("x", "y", "x", "y", where={"part": "b"}, level="line")
    unknown, changed = Panel("x", "unknown", "x", "y"), Panel("x", "y", "x", "y", rows=lambda found: found.rows[:1])
    figure = figure_of(asked, unknown, changed, table=table, line=7.0)
    assert len(figure.axes) == 2
    values = [[list(line.get_ydata()) for line in axes.lines] for axes in figure.axes]
    assert values == [[[4], [7, 7]], [[3]]]


def test_samples_are_made_from_left_to_right():
    (axes,) = figure_of(Panel("t", "y", TIME_LABEL, "y"), table=rows(t=[999, 0], y=[1.0, 2.0])).axes
    assert axes.get_xlim()[0] > axes.get_xlim()[1]


def test_a_legend_that_the_next_panel_has_too_is_drawn_once():
    figure = figure_of(panel("bars"), panel("bars"), Panel("steps", "y", "x", "y"), table=TABLE)
    assert [axes.get_legend() is not None for axes in figure.axes] == [False, True, False]


def test_a_band_on_a_logarithmic_axis_stays_above_nothing():
    table = rows(x=[1, 2], y=[1.0, 2.0], y_std=[3.0, 0.5])
    (axes,) = figure_of(Panel("x", "y", "x", "y", log="y"), table=table).axes
    heights = np.concatenate([path.vertices[:, 1] for path in axes.collections[0].get_paths()])
    assert heights.min() == pytest.approx(0.1)
    assert heights.max() == 4
