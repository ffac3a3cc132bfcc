import numpy as np
import pytest
from drawn import is_drawn

from geosprint.paper.figures import TIME_LABEL, Panel, Sheet, drawn, series_of


def rows(**columns):
    """A table from its columns."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_rows_of_one_x_are_a_point_with_their_mean_and_standard_deviation():
    table = rows(x=[1, 2, 1, 2], y=[3.0, 8.0, 5.0, 8.0])
    (line,) = series_of(Panel(table, "x", "y", "x", "y"))
    assert line.x == [1, 2]
    assert [(found.value, found.low, found.high) for found in line.found] == [(4, 3, 5), (8, 8, 8)]
    (dots,) = series_of(Panel(table, "x", "y", "x", "y", kind="dots"))
    assert (dots.x, [found.value for found in dots.found]) == ([1, 2, 1, 2], [3, 8, 5, 8])


def test_an_interval_is_that_of_its_columns():
    measured = rows(x=[1], y=[4.0], y_low=[3.0], y_high=[9.0], y_std=[7.0])
    repeated = rows(x=[1, 2], y=[4.0, 5.0], y_std=[0.5, 1.0])
    unknown = rows(x=[1], y=[4.0], y_std=[None])
    found = [series_of(Panel(table, "x", "y", "x", "y"))[0].found for table in (measured, repeated, unknown)]
    assert [(one.low, one.high) for some in found for one in some] == [(3, 9), (3.5, 4.5), (4, 6), (4, 4)]


def test_every_column_and_every_value_is_a_series_of_its_own_look():
    table = rows(x=[1, 1, 1, 1], steps=[5, 5, 10, 10], solver=["a", "b", "a", None], y=[1, 2, 3, 4], z_2=[5, 6, 7, 8])
    names = [one.name for one in series_of(Panel(table, "x", "y", "x", "y", by=("steps", "solver")))]
    assert names == ["K = 5, a", "K = 5, b", "K = 10, a", "K = 10"]
    looks = [one.look for one in series_of(Panel(table, "x", "y", "x", "y", by=("steps", "solver")))]
    assert looks[0]["color"] == looks[1]["color"] != looks[2]["color"]  # colours tell K
    assert looks[0]["ls"] == looks[2]["ls"] != looks[1]["ls"]  # dashes tell solvers
    several = series_of(Panel(table, "x", ("y", "z_2"), "x", "y", by=("steps",)))
    assert [one.name for one in several] == ["y, K = 5", "y, K = 10", "z 2, K = 5", "z 2, K = 10"]
    assert [[found.value for found in one.found] for one in several] == [[1.5], [3.5], [5.5], [7.5]]


def panel(kind, log=""):
    table = rows(x=["one", "two"], steps=[5, 10], y=[0.1, 200.0], y_low=[0.05, 100.0], y_high=[0.2, 300.0])
    return Panel(table, "x" if kind != "lines" else "steps", "y", "x", "y", by=("steps",), kind=kind, log=log, level=1)


@pytest.mark.parametrize("kind", ["lines", "dots", "bars", "histograms"])
@pytest.mark.parametrize("log", ["", "y"])
def test_every_kind_of_panel_is_drawn(kind, log):
    assert is_drawn(drawn(Sheet("both", [panel(kind, log), panel(kind, log)])))


def test_intervals_are_drawn_where_they_are():
    (axes,) = drawn(Sheet("", [panel("dots", "y")])).axes
    ends = {tuple(segment[:, 1]) for lines in axes.collections for segment in lines.get_segments()}
    assert ends == {(0.05, 0.2), (100, 300)}
    assert axes.get_yscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["one", "two"]


def test_samples_are_made_from_left_to_right():
    (axes,) = drawn(Sheet("", [Panel(rows(t=[999, 0], y=[1.0, 2.0]), "t", "y", TIME_LABEL, "y")])).axes
    assert axes.get_xlim()[0] > axes.get_xlim()[1]


def test_a_legend_that_the_next_panel_has_too_is_drawn_once():
    figure = drawn(Sheet("", [panel("bars"), panel("bars"), Panel(rows(x=[1], y=[2.0]), "x", "y", "x", "y")]))
    assert [axes.get_legend() is not None for axes in figure.axes] == [False, True, False]


def test_a_band_on_a_logarithmic_axis_stays_above_nothing():
    table = rows(x=[1, 2], y=[1.0, 2.0], y_std=[3.0, 0.5])
    (axes,) = drawn(Sheet("", [Panel(table, "x", "y", "x", "y", log="y")])).axes
    heights = np.concatenate([path.vertices[:, 1] for path in axes.collections[0].get_paths()])
    assert heights.min() == pytest.approx(0.1)
    assert heights.max() == 4
