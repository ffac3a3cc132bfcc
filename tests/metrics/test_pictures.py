import numpy as np
import pytest
import torch
from PIL import Image

from geosprint.errors import FileError, GeometryError
from geosprint.metrics.pictures import eight_bit, save_pngs


def test_the_whole_numbers_of_pixels_by_hand():
    line = torch.tensor([-1.0, 1.0, 0.002, -0.002, -3.0, 7.0, 2 / 255 - 1]).reshape(1, 1, 1, 7)
    assert eight_bit(line).flatten().tolist() == [0, 255, 128, 127, 0, 255, 1]


def test_every_whole_number_comes_back():
    levels = torch.arange(256).reshape(1, 1, 16, 16)
    assert torch.equal(eight_bit(levels / 127.5 - 1), levels.to(torch.uint8))


@pytest.mark.parametrize("channels", [1, 3])
def test_one_png_for_each_sample_and_the_pixels_are_those_of_the_sample(channels, tmp_path):
    samples = torch.rand(3, channels, 4, 6, generator=torch.Generator().manual_seed(0)) * 2 - 1
    paths = save_pngs(samples, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["000000.png", "000001.png", "000002.png"]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == paths
    for path, sample in zip(paths, samples, strict=True):
        with Image.open(path) as picture:
            assert picture.mode == {1: "L", 3: "RGB"}[channels]
            found = np.asarray(picture).reshape(4, 6, channels).transpose(2, 0, 1)
        np.testing.assert_array_equal(found, np.rint((sample.numpy().astype(float) + 1) * 127.5))


def test_the_same_samples_give_the_same_bytes_in_the_same_folder(tmp_path):
    samples = torch.rand(2, 3, 5, 5) * 2 - 1
    first = [path.read_bytes() for path in save_pngs(samples, tmp_path)]
    assert [path.read_bytes() for path in save_pngs(samples, tmp_path)] == first


def test_a_folder_with_other_pictures_is_refused_and_left_alone(tmp_path):
    save_pngs(torch.zeros(3, 1, 2, 2), tmp_path)
    before = (tmp_path / "000000.png").read_bytes()
    with pytest.raises(FileError, match=r"it has 000002\.png"):
        save_pngs(torch.ones(2, 1, 2, 2), tmp_path)
    assert (tmp_path / "000000.png").read_bytes() == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="is a file"):
        save_pngs(torch.zeros(1, 1, 2, 2), tmp_path / "file")


@pytest.mark.parametrize("shape", [(2, 2, 4, 4), (2, 16), (3, 4, 4)])
def test_what_is_no_picture_is_refused(shape, tmp_path):
    with pytest.raises(GeometryError, match="1 or 3, height, width"):
        save_pngs(torch.zeros(shape), tmp_path)


def test_a_pixel_that_is_not_a_number_is_refused():
    with pytest.raises(GeometryError, match="finite"):
        eight_bit(torch.full((1, 1, 2, 2), float("nan")))


def test_half_precision_is_rounded_once():
    # 0.62890625 is a bfloat16; (x + 1)·127.5 = 207.69, but 1.6289 itself would round to 1.6250 and give 207.19.
    picture = torch.full((1, 1, 1, 1), 0.62890625, dtype=torch.bfloat16)
    assert eight_bit(picture).item() == 208
