from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from toys import idx_bytes, write_cifar10, write_fashion, write_source

from geosprint.errors import FileError
from recipes.networks.data import CIFAR10_TRAIN, FASHION_TRAIN, read_cifar10, read_fashion, read_source


def test_fashion_bytes_become_floats_from_minus_one_to_one(tmp_path):
    pictures = np.stack([np.zeros((28, 28)), np.full((28, 28), 255)]).astype(np.uint8)
    sources = (
        write_source(tmp_path, "images.gz", idx_bytes(pictures)),
        write_source(tmp_path, "labels.gz", idx_bytes(np.array([3, 9], dtype=np.uint8))),
    )
    read = read_fashion(tmp_path, sources)
    assert read.images.shape == (2, 1, 28, 28)
    assert read.images.dtype == torch.float32
    assert (read.images[0] == -1).all()
    assert (read.images[1] == 1).all()
    assert read.labels.tolist() == [3, 9]
    assert len(read) == 2


def test_cifar_pixels_keep_their_place_and_channel(tmp_path):
    read = read_cifar10(tmp_path, write_cifar10(tmp_path, count=8))
    number, row, column = (read.images + 1).mul(127.5).round().unbind(1)
    assert read.images.shape == (16, 3, 32, 32)
    assert (number == torch.arange(16.0).view(-1, 1, 1)).all()
    assert (row == torch.arange(32.0).view(-1, 1)).all()
    assert (column == torch.arange(32.0)).all()
    assert read.labels.tolist() == [i % 10 for i in range(16)]


def test_a_gzip_cut_short_is_named(tmp_path):
    sources = write_fashion(tmp_path)
    path = tmp_path / sources[0].name
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FileError, match=r"train-images-idx3-ubyte.gz is truncated"):
        read_fashion(tmp_path, sources)


def test_a_picture_cut_short_is_named_with_both_sizes(tmp_path):
    sources = write_cifar10(tmp_path)
    path = tmp_path / sources[1].name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileError, match=rf"data_batch_2.png must hold {sources[1].size} bytes, it holds 100"):
        read_cifar10(tmp_path, sources)


def test_a_file_of_the_right_size_and_wrong_content_is_named(tmp_path):
    sources = write_fashion(tmp_path)
    path = tmp_path / sources[1].name
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] ^= 1
    path.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(FileError, match=r"train-labels-idx1-ubyte.gz must have sha256"):
        read_fashion(tmp_path, sources)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileError, match=r"expected data_batch_1.png in"):
        read_source(tmp_path, CIFAR10_TRAIN[0])


def test_the_checksum_looks_through_gzip(tmp_path):
    source = write_source(tmp_path, "a.gz", b"the same content")
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"the same content", compresslevel=1, mtime=1))
    assert read_source(tmp_path, source) == b"the same content"


def test_a_label_too_few_is_an_error(tmp_path):
    sources = write_fashion(tmp_path, count=4)
    short = write_source(tmp_path, sources[1].name, idx_bytes(np.zeros(3, dtype=np.uint8)))
    with pytest.raises(FileError, match="one label per picture, 4, it holds 3"):
        read_fashion(tmp_path, (sources[0], short))


def test_something_else_than_idx_is_named(tmp_path):
    sources = write_fashion(tmp_path)
    other = write_source(tmp_path, sources[0].name, b"GIF89a" * 10)
    with pytest.raises(FileError, match="must start with the idx header"):
        read_fashion(tmp_path, (other, sources[1]))


def test_the_real_sources_have_whole_checksums():
    assert all(len(bytes.fromhex(source.sha256)) == 32 for source in (*FASHION_TRAIN, *CIFAR10_TRAIN))
    assert FASHION_TRAIN[0].size == 16 + 60_000 * 28 * 28
