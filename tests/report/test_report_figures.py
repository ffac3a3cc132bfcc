import re

import numpy as np
import pytest
import torch
from PIL import Image

from geosprint.comparison.plan import Plan
from geosprint.comparison.run import compare
from geosprint.errors import FileError
from geosprint.extraction import extract, find_budget
from geosprint.models.exact import ring
from geosprint.noise import Flow
from geosprint.report.comparison import show_comparison
from geosprint.report.pictures import grid
from geosprint.report.plots import picture_samples, plot_budget, plot_profile, side_by_side
from geosprint.report.tables import Table


@pytest.fixture(scope="module")
def profile():
    return extract(ring(), trajectories=6, reference_steps=30)


@pytest.fixture(scope="module")
def flow_profile():
    return extract(ring(noise=Flow(shift=3)), trajectories=4, reference_steps=20)


def pixels_of(path):
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB")).astype(int)


def is_drawn(pixels):
    """More than a blank sheet: several colours, and ink away from the border."""
    inner = pixels[10:-10, 10:-10].reshape(-1, 3)
    return len(np.unique(inner, axis=0)) > 5 and (inner.sum(axis=1) < 3 * 250).mean() > 0.003


def has_colour(pixels, colour):
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return (np.abs(pixels - wanted).max(axis=2) < 12).sum() > 4


def images(count, channels=1, size=8, seed=0):
    return torch.rand(count, channels, size, size, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def test_a_profile_is_drawn(profile, tmp_path):
    path = plot_profile(profile, tmp_path / "profile.png")
    assert path == tmp_path / "profile.png"
    pixels = pixels_of(path)
    assert is_drawn(pixels)
    for colour in ("#0072b2", "#56b4e9", "#d55e00", "#009e73"):  # retention twice, the blend, the counts
        assert has_colour(pixels, colour)


def test_the_profile_of_a_flow_is_drawn(flow_profile, tmp_path):
    assert is_drawn(pixels_of(plot_profile(flow_profile, tmp_path / "profile.png")))


def test_a_budget_is_drawn_with_its_curve_and_its_point(profile, flow_profile, tmp_path):
    for each in (profile, flow_profile):
        pixels = pixels_of(plot_budget(find_budget(each, 0.05), tmp_path / "budget.png"))
        assert is_drawn(pixels)
        assert has_colour(pixels, "#0072b2")
        assert has_colour(pixels, "#d55e00")


def test_points_are_drawn_as_points(tmp_path):
    points = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    for path in (
        picture_samples(points, tmp_path / "points.png"),
        picture_samples(points[:, :1], tmp_path / "line.png"),
        picture_samples(points[:1], tmp_path / "single.png"),
    ):
        assert has_colour(pixels_of(path), "#0072b2")


def test_a_grid_puts_every_pixel_where_it_belongs():
    samples = torch.arange(3 * 2 * 4).reshape(3, 1, 2, 4) / 12 - 1  # three images of 2×4, values 0/24 .. 23/24
    sheet = grid(samples, columns=2)
    assert sheet.shape == (2 * 2 + 1, 2 * 4 + 1)
    for image, row, column in ((0, 0, 0), (1, 0, 5), (2, 3, 0)):
        expected = (np.arange(8).reshape(2, 4) + 8 * image) / 24
        np.testing.assert_allclose(sheet[row : row + 2, column : column + 4] / 255, expected, atol=0.5 / 255 + 1e-6)
    assert (sheet[2] == 255).all()  # the line between the rows
    assert (sheet[:, 4] == 255).all()  # the line between the columns
    assert (sheet[3:, 5:] == 255).all()  # the empty place


def test_a_grid_keeps_the_channels_of_colour_images_last():
    samples = torch.full((1, 3, 2, 2), -1.0)
    samples[0, 1, 0, 1] = 1.0  # green at row 0, column 1
    sheet = grid(samples, columns=1)
    assert sheet.shape == (2, 2, 3)
    assert sheet[0, 1].tolist() == [0, 255, 0]
    assert sheet.sum() == 255


def test_values_beyond_the_range_are_cut():
    assert grid(torch.tensor([-7.0, 0.0, 7.0]).reshape(3, 1, 1, 1), columns=3)[0, ::2].tolist() == [0, 128, 255]


def test_a_saved_grid_shows_the_pixels_enlarged(tmp_path):
    samples = torch.full((4, 1, 8, 8), -1.0)
    samples[2, 0, 5, 3] = 1.0
    with Image.open(picture_samples(samples, tmp_path / "x.png")) as image:
        sheet = np.asarray(image)
    larger = 48 // 8
    assert sheet.shape == (17 * larger, 17 * larger)
    small = sheet[::larger, ::larger]
    assert (sheet == small.repeat(larger, 0).repeat(larger, 1)).all()
    assert small[9 + 5, 3] == 255  # image 2 is the first of the second row
    assert (small[:8, :8] == 0).all()
    assert (small[8] == 255).all()


def test_a_saved_grid_of_colour_images_is_in_colour(tmp_path):
    samples = torch.full((1, 3, 4, 4), -1.0)
    samples[0, 0] = 1.0
    with Image.open(picture_samples(samples, tmp_path / "x.png")) as image:
        assert image.mode == "RGB"
        assert image.getpixel((5, 5)) == (255, 0, 0)


def test_samples_side_by_side_have_a_caption_each_and_their_own_pixels(tmp_path):
    black, white, red = -torch.ones(4, 1, 8, 8), torch.ones(4, 1, 8, 8), -torch.ones(4, 3, 8, 8)
    red[:, 0] = 1
    path = side_by_side([("50 uniform steps", black), ("9 uniform steps", white), ("ours", red)], tmp_path / "x.png")
    pixels = pixels_of(path)
    height, width = pixels.shape[:2]
    thirds = [pixels[:, i * width // 3 : (i + 1) * width // 3] for i in range(3)]
    middles = [one[height // 2 + 9 : height // 2 + 99, 60:150].reshape(-1, 3) for one in thirds]
    for middle, colour in zip(middles, ([0, 0, 0], [255, 255, 255], [255, 0, 0]), strict=True):
        assert np.abs(np.median(middle, axis=0) - colour).max() <= 1
    for one in thirds:
        assert (one[: height // 10].sum(axis=2) < 300).any()  # letters above the grid


def test_points_side_by_side_are_points(tmp_path):
    points = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    assert has_colour(pixels_of(side_by_side([("one", points), ("other", points)], tmp_path / "x.png")), "#0072b2")


def test_a_picture_that_cannot_be_written_is_refused_and_leaves_nothing(tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(FileError, match="cannot write"):
        picture_samples(images(1), tmp_path / "taken" / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


WIDE = [(f"method-{i}", *(f"{i}.{k:04d}" for k in range(14))) for i in range(3)]
TITLES = ("method", *(f"K={k}" for k in range(14)))


def test_a_table_in_a_file_is_as_wide_as_it_needs_to_be(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    Table.of(TITLES, WIDE).show()
    assert [tuple(line.split()) for line in capsys.readouterr().out.splitlines()] == [TITLES, *WIDE]


def test_a_table_on_a_terminal_keeps_to_its_width(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("FORCE_COLOR", "1")
    Table.of(TITLES, WIDE).show()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, shown)) <= 60


def test_every_number_of_a_comparison_of_five_budgets_can_be_read_in_a_file(tmp_path, capsys):
    plan = Plan(
        steps=(2, 3, 4, 5, 6),
        methods=("uniform-trailing",),
        samples=10,
        trajectories=2,
        reference_steps=8,
        fine_steps=6,
    )
    show_comparison(compare(ring(), tmp_path, plan), [])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("uniform-trailing"))
    assert len(re.findall(r"\d\.\d{4}", row)) == 5
