"""A directory that outlives a kill: what the work in it is, and a file for every part that is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from geosprint.errors import FileError
from geosprint.files import VERSION, finite, read_json, read_tensors, refusing_damage, write_json, write_whole
from geosprint.runs.team import Team, this_team

FORMAT = "geosprint-work"
PART_FORMAT = "geosprint-shard"
MANIFEST = "manifest.json"

Shard = tuple[dict[str, Tensor], dict[str, Any]]
"""A part of the work, such as what was made of some rows of a long list: tensors, and what there is to know of them."""

Maker = Callable[[Sequence[range]], Iterator[Shard]]
"""Makes the shards of these batches, one after another, each when it is asked for."""


@dataclass(frozen=True)
class Store:
    """The finished parts of one job: a file each, that stands whole or not at all."""

    directory: Path
    job: dict[str, Any]  # all that the parts depend on, by name
    answers: Sequence[float] = ()  # of the model of the job, which may have the name of another
    check: Callable[[dict[str, Tensor], dict[str, Any]], object] = lambda *_: None  # refuses what is not such a part

    @classmethod
    def begun(cls, directory: Path, job: dict[str, Any], answers: Sequence[float], rounding: float) -> Store:
        """The directory of this job: new, or left by an earlier run of the same job on the same model."""
        asked = cls(Path(directory), json.loads(json.dumps(job)), answers)
        manifest = asked.directory / MANIFEST
        if manifest.exists():
            asked._refuse_another(cls.found(directory), rounding)
        else:
            write_json(manifest, FORMAT, {"job": asked.job, "answers": list(answers)}, "name another directory")
        return asked

    @classmethod
    def found(cls, directory: Path) -> Store:
        """The directory that earlier runs left."""
        manifest = Path(directory) / MANIFEST
        content = read_json(manifest, FORMAT)
        with refusing_damage(manifest):
            return cls(Path(directory), dict(content["job"]), finite(content["answers"]))

    def read(self, key: str) -> Shard | None:
        """What was kept under this key; None if it is missing, damaged or of another job, and must be made again."""
        path = self._path(key)
        with suppress(FileError), refusing_damage(path):
            tensors, about = unpacked(path)
            if about.pop("job", None) == digest_of(self.job) and about.pop("key", key) == key:
                self.check(tensors, about)
                return tensors, about
        return None

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
        whole = packed(tensors, {**about, "key": key, "job": digest_of(self.job)})
        way_out = "what is finished stays: make room, and the same command goes on"
        write_whole(self._path(key), lambda to: to.write_bytes(whole), way_out)

    @contextmanager
    def claimed(self, key: str, waiting: bool) -> Iterator[bool]:
        """Whether this part is ours to make: another run may be at it, which is waited for or not."""
        path = self.directory / f"{key}.claim"
        claim = FileLock(path, timeout=-1 if waiting else 0)  # goes with its process
        with suppress(Timeout):
            claim.acquire()
        try:
            yield claim.is_locked
        finally:
            if claim.is_locked:
                path.unlink(missing_ok=True)  # who comes next looks first whether the part is there
            claim.release()

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.safetensors"

    def _refuse_another(self, found: Store, rounding: float) -> None:
        """Another job, by what differs; and another model of the same name, by its answers."""
        if other := list(_differences(found.job, self.job)):
            before, now = (", ".join(f"{one[0]} {str(one[side])[:60]}" for one in other) for side in (1, 2))
            raise FileError(
                f"the work in {self.directory} was begun with {before}, and now it is {now}; "
                "ask for the same, name another directory, or delete this one"
            )
        then, here = np.asarray(found.answers), np.asarray(self.answers)
        if then.shape != here.shape or not np.linalg.norm(then - here) <= rounding * np.linalg.norm(then):
            raise FileError(
                f"the work in {self.directory} was begun with another model: this one has the same name but other "
                "outputs (are its weights new?); name another directory, or delete this one"
            )


def _differences(before: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every value that is not the same: its path, what it was and what it is."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now):
            yield from _differences(before.get(name), now.get(name), f"{path}.{name}")
    elif before != now:
        yield path[1:], before, now


def digest_of(described: Any, tensors: Mapping[str, Tensor] | None = None) -> str:
    """One name for all that JSON can say, whatever its order, and for tensors, their names and kinds, bit for bit."""
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, tensor in sorted((tensors or {}).items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def packed(tensors: dict[str, Tensor], about: dict[str, Any]) -> bytes:
    """A safetensors file with a checksum over all it holds."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    about = {"format": PART_FORMAT, "version": VERSION, **about}
    return save(tensors, {"geosprint": json.dumps({**about, "sha256": digest_of(about, tensors)})})


def unpacked(path: Path) -> Shard:
    """The inverse of `packed`, of a file; whatever was changed on the way is refused."""
    tensors, about = read_tensors(path, PART_FORMAT)
    with refusing_damage(path):
        if about.pop("sha256") != digest_of(about, tensors):
            raise ValueError("its checksum does not agree with what it holds")
    del about["format"], about["version"]
    return {name: tensor.clone() for name, tensor in tensors.items()}, about  # others may replace the file


def shard_key(rows: range) -> str:
    """The key of the shard of these rows in a store."""
    return f"shard-{rows.start:06d}-{rows.stop - 1:06d}"


def shards_in_order(
    batches: Sequence[range], make: Maker, store: Store | None = None, ahead: int = 1
) -> Iterator[Shard]:
    """The shard of every batch, in order, at every process; each makes `ahead` of them between two exchanges.

    What was kept is read. Others are made, each whole by one process, with its bits.
    """
    team = this_team()
    found = team.told(lambda: {rows for rows in batches if store and store.read(shard_key(rows))})
    fresh = _made([rows for rows in batches if rows not in found], make, store, team, ahead)
    for rows in batches:
        if not store or rows not in found:
            yield next(fresh)
        elif shard := team.told(partial(store.read, shard_key(rows))):
            yield shard
        else:
            raise FileError(f"a shard in {store.directory} was whole and is no longer; the same command makes it again")


def _made(missing: Sequence[range], make: Maker, store: Store | None, team: Team, ahead: int) -> Iterator[Shard]:
    """Kept by who made it as soon as it is done, and by the first for all, whose disk may be another one."""
    mine = make(missing[team.rank :: team.size])

    def job(rows: range) -> Shard:
        shard = next(mine)
        if store:
            store.keep(shard_key(rows), *shard)
        return shard

    for start in range(0, len(missing), ahead * team.size):
        together = missing[start : start + ahead * team.size]
        for rows, shard in zip(together, team.each([partial(job, rows) for rows in together]), strict=True):
            if store and team.leads and store.read(shard_key(rows)) is None:
                store.keep(shard_key(rows), *shard)
            yield shard
