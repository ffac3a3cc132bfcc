"""Samples as pictures of the page."""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from PIL import Image

from geosprint.report.pictures import MOST_BYTES, WIDEST, are_pictures, figure, sheet, sheets


def opened(uri: str) -> np.ndarray:
    kind, coded = uri.split(",", 1)
    assert kind == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(coded))).convert("RGB"))


def test_a_sheet_holds_the_samples_without_loss_in_rows_of_five():
    levels = torch.arange(7).float() / 7  # one grey for each sample
    samples = (2 * levels - 1).view(7, 1, 1, 1).expand(7, 1, 4, 6)
    found = opened(sheet(samples))
    assert found.shape == (2 * 5 - 1, 5 * 7 - 1, 3)
    for i, level in enumerate(levels):
        top, left = 5 * (i // 5), 7 * (i % 5)
        assert (found[top : top + 4, left : left + 6] == round(255 * float(level))).all()


def test_colours_stay_in_their_channels():
    red = torch.stack([torch.ones(3, 3), -torch.ones(3, 3), -torch.ones(3, 3)])[None]
    assert (opened(sheet(red)) == [255, 0, 0]).all()


def test_large_samples_are_shrunk_to_their_means():
    halves = torch.ones(1, 1, 4 * WIDEST, 2 * WIDEST)
    halves[..., WIDEST:] = -1
    found = opened(sheet(halves))
    assert found.shape == (WIDEST, WIDEST // 2, 3)
    assert (found[:, : WIDEST // 4] == 255).all()
    assert (found[:, WIDEST // 4 :] == 0).all()


def test_very_many_pictures_are_fewer_each_so_that_the_page_stays_small():
    noise = torch.randn(10, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    made = sheets({(i, "x"): noise for i in range(40)})
    assert len(made) == 40
    assert sum(map(len, made.values())) <= MOST_BYTES
    assert opened(made[0, "x"]).shape[0] < 2 * 49 - 1
    assert opened(sheets({0: noise})[0]).shape[0] == 2 * 49 - 1


def test_points_and_latents_are_no_pictures():
    assert are_pictures(torch.zeros(2, 3, 4, 4))
    assert not are_pictures(torch.zeros(2, 4, 4, 4))
    assert not are_pictures(torch.zeros(2, 2))


def test_a_figure_that_is_none_is_left_out(tmp_path):
    assert figure(tmp_path / "missing.png") is None
    (tmp_path / "text.png").write_text("no picture")
    assert figure(tmp_path / "text.png") is None
    Image.new("RGB", (3, 2), (9, 8, 7)).save(tmp_path / "whole.png")
    assert (opened(figure(tmp_path / "whole.png")) == [9, 8, 7]).all()
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:50])
    assert figure(tmp_path / "half.png") is None
