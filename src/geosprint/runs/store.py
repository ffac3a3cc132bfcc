"""A directory that outlives a kill: what the work in it is, and a file for every part that is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from geosprint.errors import FileError
from geosprint.files import (
    VERSION,
    check_format,
    finite,
    parsed_json,
    read_bytes,
    read_json,
    refusing_damage,
    write_json,
    write_whole,
)

if TYPE_CHECKING:
    from geosprint.trajectory import Trajectories

FORMAT = "geosprint-work"
PART_FORMAT = "geosprint-shard"
MANIFEST = "manifest.json"
PROBE_STEPS, PROBE_NUMBERS = 4, 512
"""A short walk of the first sample; so many numbers of it tell weights apart."""

ROUNDING, OTHER_DEVICE = 1e-4, 0.01
"""Relative distances of two fingerprints of one model. What cannot be told by its weights is told by its answers, to
rounding; where the weights are the same bit for bit, another device may round to half of its digits."""


@dataclass(frozen=True)
class Store:
    """The finished parts of one job: a file each, that stands whole or not at all."""

    directory: Path
    job: dict[str, Any]  # all that the parts depend on, by name
    check: Callable[[dict[str, Tensor], dict[str, Any]], object] | None = None  # refuses what is not such a part

    @classmethod
    def begun(cls, directory: Path, job: dict[str, Any], fingerprint: Sequence[float]) -> Store:
        """The directory of this job: new, or left by an earlier run of the same job on the same model."""
        directory, job = Path(directory), json.loads(json.dumps(job))
        manifest = directory / MANIFEST
        if manifest.exists():
            found = read_json(manifest, FORMAT)
            with refusing_damage(manifest):
                _refuse_another_job(directory, dict(found["job"]), job)
                _refuse_other_answers(directory, job, finite(found["answers"]), fingerprint)
        else:
            content = {"job": job, "answers": list(fingerprint)}
            write_json(manifest, FORMAT, content, "name another directory")
        return cls(directory, job)

    @classmethod
    def found(cls, directory: Path) -> Store:
        """The directory that earlier runs left."""
        manifest = Path(directory) / MANIFEST
        content = read_json(manifest, FORMAT)
        with refusing_damage(manifest):
            return cls(Path(directory), dict(content["job"]))

    def read(self, key: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """What was kept under this key; None if it is missing, damaged or of another job, and must be made again."""
        path = self._path(key)
        try:
            tensors, about = unpacked(read_bytes(path), path)
            if about.pop("job", None) != self._job_digest or about.pop("key", key) != key:
                return None
            if self.check:
                with refusing_damage(path):
                    self.check(tensors, about)
        except FileError:
            return None
        return tensors, about

    def keys_by_tensor(self) -> dict[str, str]:
        """The part that holds each tensor, as headers say; those that cannot be read hold none."""
        found: dict[str, str] = {}
        for path in sorted(self.directory.glob("*.safetensors")):
            with suppress(OSError, SafetensorError), safe_open(path, "pt") as part:
                found |= dict.fromkeys(part.keys(), path.stem)
        return found

    def discard(self, key: str) -> None:
        """Remove a part that is damaged; another process may have done so."""
        self._path(key).unlink(missing_ok=True)

    def keep(self, key: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Write a finished part."""
        whole = packed(tensors, {**about, "key": key, "job": self._job_digest})
        write_whole(
            self._path(key),
            lambda to: to.write_bytes(whole),
            "what is finished stays: make room, and the same command goes on",
        )

    @contextmanager
    def claimed(self, key: str, waiting: bool) -> Iterator[bool]:
        """Whether this part is ours to make: another run may be at it, which is waited for or not."""
        path = self.directory / f"{key}.claim"
        claim = FileLock(path)  # goes with its process
        try:
            claim.acquire(timeout=-1 if waiting else 0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            path.unlink(missing_ok=True)  # who comes next looks first whether the part is there
            claim.release()

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.safetensors"

    @property
    def _job_digest(self) -> str:
        return digest_of(self.job)


def begun_work(directory: Path, job: dict[str, Any], walk: Trajectories, weights: str | None) -> Store:
    """The work directory of a job on the model that this short walk is of; refuses another job and other weights."""
    versions = {name: version(name) for name in ("geosprint", "torch", "numpy")}
    job = {**job, "model": walk.origin.to_dict(), "weights": weights, "versions": versions}
    return Store.begun(directory, job, fingerprint(walk))


def fingerprint(walk: Trajectories) -> list[float]:
    """Numbers of a walk of PROBE_STEPS steps from seed 0: they tell apart weights that go by one name."""
    every = max(1, walk.states.numel() // PROBE_NUMBERS)
    return walk.states.flatten()[::every].double().tolist()


def digest_of(described: Any) -> str:
    """One name for all that JSON can say, whatever its order."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def packed(tensors: dict[str, Tensor], about: dict[str, Any]) -> bytes:
    """A safetensors file with a checksum over all it holds."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    about = {"format": PART_FORMAT, "version": VERSION, **about}
    return save(tensors, {"geosprint": json.dumps({**about, "sha256": _checksum(tensors, about)})})


def unpacked(content: bytes, source: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The inverse of `packed`; whatever was changed on the way is refused."""
    with refusing_damage(Path(source)):
        try:
            tensors = load(content)
            about = parsed_json(_header(content)["__metadata__"]["geosprint"])
        except (SafetensorError, RecursionError) as wrong:
            raise ValueError(f"not a whole safetensors file ({wrong})") from wrong
        check_format(Path(source), about, PART_FORMAT)
        checksum = about.pop("sha256")
        if _checksum(tensors, about) != checksum:
            raise ValueError("its checksum does not agree with what it holds")
        del about["format"], about["version"]
        return tensors, about


def _checksum(tensors: dict[str, Tensor], about: dict[str, Any]) -> str:
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
        said = [", ".join(f"{name} {str(leaves.get(name))[:60]}" for name in other) for leaves in (before, now)]
        raise FileError(
            f"the work in {directory} was begun with {said[0]}, and now it is {said[1]}; "
            "ask for the same, name another directory, or delete this one"
        )


def _leaves(tree: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Every value by its path, so that a difference can be named."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, dict)
        found |= _leaves(value, f"{path}{name}.") if inner else {f"{path}{name}": value}
    return found


def _refuse_other_answers(directory: Path, job: dict[str, Any], before: Sequence[float], now: Sequence[float]) -> None:
    one, other = np.asarray(before), np.asarray(now)
    allowed = OTHER_DEVICE if job.get("weights") else ROUNDING
    if one.shape != other.shape or not np.linalg.norm(one - other) <= allowed * np.linalg.norm(one):
        raise FileError(
            f"the work in {directory} was begun with another model: this one has the same name but other "
            "outputs (are its weights new?); name another directory, or delete this one"
        )
