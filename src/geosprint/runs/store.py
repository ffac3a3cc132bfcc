"""A work directory: what the work is, and a file of every shard that is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from geosprint.errors import FileError
from geosprint.files import VERSION, check_format, finite, read_json, refusing_damage, write_json, write_whole

FORMAT = "geosprint-work"
SHARD_FORMAT = "geosprint-shard"
MANIFEST = "manifest.json"
SAME_ANSWERS = 0.05
"""Relative distance of two recordings of one model: rounding on other devices is far below, other weights above."""


@dataclass(frozen=True, eq=False)
class Shard:
    """What was made of some rows of a long list: tensors, and what there is to know of them."""

    rows: range
    tensors: dict[str, Tensor]
    about: dict[str, Any]

    def to_bytes(self) -> bytes:
        """A safetensors file with a checksum over all it holds."""
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        about = {"format": SHARD_FORMAT, "version": VERSION, **self.about, "rows": [self.rows.start, self.rows.stop]}
        said = json.dumps({**about, "sha256": checksum(tensors, about)})
        return save(tensors, {"geosprint": said})

    @classmethod
    def from_bytes(cls, content: bytes, source: Path | str) -> Shard:
        """The inverse of `to_bytes`; whatever was changed on the way is refused."""
        with refusing_damage(Path(source)):
            try:
                tensors = load(content)
                about = json.loads(_header(content)["__metadata__"]["geosprint"])
            except (SafetensorError, RecursionError) as wrong:
                raise ValueError(f"not a whole safetensors file ({wrong})") from wrong
            check_format(Path(source), about, SHARD_FORMAT)
            said = about.pop("sha256")
            if checksum(tensors, about) != said:
                raise ValueError("its checksum does not agree with what it holds")
            del about["format"], about["version"]
            return cls(range(*about.pop("rows")), tensors, about)


@dataclass(frozen=True)
class Shards:
    """The finished shards of one job: a file each, that stands whole or not at all."""

    directory: Path
    job: dict[str, Any]  # all that the shards depend on, by name

    @classmethod
    def begun(cls, directory: Path, job: dict[str, Any], answers: Sequence[float]) -> Shards:
        """The directory of this job: new, or left by an earlier run of the same job on the same model.

        `answers` are numbers that the model gave; they tell apart weights that go by one name.
        """
        directory, job = Path(directory), json.loads(json.dumps(job))
        manifest = directory / MANIFEST
        if manifest.exists():
            found = read_json(manifest, FORMAT)
            with refusing_damage(manifest):
                _refuse_another_job(directory, dict(found["job"]), job)
                _refuse_other_answers(directory, finite(found["answers"]), answers)
        else:
            content = {"job": job, "answers": list(answers)}
            write_json(manifest, FORMAT, content, "name another directory with --work")
        return cls(directory, job)

    @classmethod
    def found(cls, directory: Path) -> Shards:
        """The directory that earlier runs left."""
        manifest = Path(directory) / MANIFEST
        content = read_json(manifest, FORMAT)
        with refusing_damage(manifest):
            return cls(Path(directory), dict(content["job"]))

    def read(self, rows: range) -> Shard | None:
        """The shard of these rows; None if it is missing, damaged or of another job, and must be made again."""
        path = self._path(rows)
        try:
            shard = Shard.from_bytes(path.read_bytes(), path)
        except (OSError, FileError):
            return None
        ours = shard.rows == rows and shard.about.pop("job", None) == self._job_digest
        return shard if ours else None

    def keep(self, shard: Shard) -> None:
        """Write a finished shard."""
        whole = Shard(shard.rows, shard.tensors, {**shard.about, "job": self._job_digest}).to_bytes()
        write_whole(
            self._path(shard.rows),
            lambda to: _write(to, whole),
            "finished shards stay: make room, and the same command goes on",
        )

    def _path(self, rows: range) -> Path:
        return self.directory / f"shard-{rows.start:06d}-{rows.stop - 1:06d}.safetensors"

    @property
    def _job_digest(self) -> str:
        return hashlib.sha256(json.dumps(self.job, sort_keys=True).encode()).hexdigest()


def checksum(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
    """Over all that a file holds: tensors, their names and kinds, and what is said of them."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _header(content: bytes) -> dict[str, Any]:
    """A safetensors file begins with the length of its header, in eight bytes, and the header, in JSON."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length])


def _refuse_another_job(directory: Path, begun: dict[str, Any], asked: dict[str, Any]) -> None:
    before, now = _leaves(begun), _leaves(asked)
    other = sorted(name for name in before.keys() | now if before.get(name) != now.get(name))
    if other:
        told = [", ".join(f"{name} {str(leaves.get(name))[:60]}" for name in other) for leaves in (before, now)]
        raise FileError(
            f"the work in {directory} was begun with {told[0]}, and now it is {told[1]}; "
            "ask for the same, name another directory, or delete this one"
        )


def _leaves(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Every value by its path, so that a difference can be named."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, dict)
        found |= _leaves(value, f"{path}{name}.") if inner else {f"{path}{name}": value}
    return found


def _refuse_other_answers(directory: Path, before: Sequence[float], now: Sequence[float]) -> None:
    one, other = np.asarray(before), np.asarray(now)
    if one.shape != other.shape or not np.linalg.norm(one - other) <= SAME_ANSWERS * np.linalg.norm(one):
        raise FileError(
            f"the work in {directory} was begun with another model: this one goes by the same name but answers "
            "otherwise (are its weights new?); name another directory, or delete this one"
        )


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
