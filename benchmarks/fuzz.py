"""Feeds mutated files of every kind to the loaders: each must be loaded, or refused with a GeoSprintError.

`python -m benchmarks.fuzz` prints how many were loaded and how many refused; any other exception, more memory than
MOST_MEMORY or more time than MOST_SECONDS for one file ends it with the file that did it. Linux only.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import random
import resource
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from geosprint import FittedSolver, GeoSprintError, StepSchedule, build_schedule, extract, load_model, record
from geosprint.comparison.cells import Cell, Memory, ReferenceSolve
from geosprint.extraction import merge
from geosprint.files import write_json
from geosprint.metrics.features import read_statistics
from geosprint.models.fingerprint import made_for
from geosprint.models.networks import CARD, CONFIG, WEIGHTS, Card, load_pretrained, write_card
from geosprint.models.unet import build_unet
from geosprint.noise import Flow
from geosprint.paper.base import PaperFinding, Setting
from geosprint.paper.registry import FORMAT as FINDING_FORMAT
from geosprint.paper.registry import recall
from geosprint.profile import CurvatureProfile
from geosprint.runs.store import unpacked
from geosprint.trajectory import Trajectories
from geosprint.tuned import FITTED, OURS, TODAY, Today, Tuned, TunedSteps
from recipes.networks.export import averaged_weights, write_halves
from recipes.networks.loop import CHECKPOINT, steps_done
from recipes.networks.recipe import unet_config
from recipes.networks.reflow import Couplings, load_couplings, save_couplings

MOST_MEMORY = 1 << 30
MOST_SECONDS = 20

HOSTILE = [
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e308, 10**6, 10**9, 2**31, 2**63, 10**30, "", "0", "x" * 1000,
    "../../etc/passwd", "/etc/passwd", "\u0000", "nan", [], {}, [[]], [None], [0], [-1], {"a": 1}, [10**9, 10**9],
    float("nan"), float("inf"), list(range(1000)), [[]] * 100_000, "1" * 100_000,
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A valid file, and what loads it."""

    path: Path
    load: Callable[[], object]


def kinds(directory):
    """One of each kind of file that this package reads."""
    model = load_model("mixture")
    walks = record(model, range(4), 8, predictions=True)
    profile = extract(model, 4, 12, batch=2, work=directory / "work")
    files = {
        "profile": profile.save(directory / "profile.json"),
        "schedule": build_schedule(profile, 5).save(directory / "schedule.json"),
        "tuned": _tuned(build_schedule(profile, 3)).save(directory / "tuned.json"),
        "trajectories": walks.save(directory / "walks.safetensors"),
        "states": walks.save_states(directory / "states.safetensors"),
        "manifest": directory / "work" / "manifest.json",
        "shard": directory / "work" / "shard-000000-000001.safetensors",
        "finding": _finding(directory / "finding"),
        "statistics": _statistics(directory / "statistics.npz"),
        "card": _network(directory / "network") / CARD,
        "config": directory / "network" / CONFIG,
        "weights": directory / "network" / WEIGHTS,
        "checkpoint": _checkpoint(directory / "run"),
        "pairs": _pairs(directory / "pairs.safetensors"),
    }
    whole = unpacked(files["shard"].read_bytes(), "shard")
    loaders = {
        "profile": CurvatureProfile.load,
        "schedule": StepSchedule.load,
        "tuned": Tuned.load,
        "trajectories": lambda path: Trajectories.load(path).gram(),
        "states": lambda path: Trajectories.load(path).gram(),
        "manifest": lambda path: merge(path.parent),
        "shard": lambda path: _as_before(unpacked(path.read_bytes(), path), whole),
        "finding": lambda path: recall(path.parent),
        "statistics": read_statistics,
        **{name: lambda path: load_pretrained("network", assets=directory) for name in ("card", "config", "weights")},
        "checkpoint": lambda path: (steps_done(path.parent), averaged_weights(path.parent)),
        "pairs": load_couplings,
    }
    made = {name: Kind(path, lambda path=path, name=name: loaders[name](path)) for name, path in files.items()}
    return made | _cells(directory / "cells", model)


def _as_before(shard, whole):
    """A shard has a checksum: what is loaded is what was written."""
    assert shard[1] == whole[1]
    assert all(torch.equal(shard[0][name], tensor) for name, tensor in whole[0].items())
    return shard


def _cells(directory, model):
    memory, key = Memory(directory), {"solver": "ddim", "method": "fuzzed", "steps": 2}
    cell = Cell("ddim", "fuzzed", 2, np.array([9.0, 3.0]), 2.0, 0, 0.0, np.ones(3), torch.ones(3, 2), torch.ones(1, 2))
    memory.keep(key, cell)
    fine = ReferenceSolve(torch.ones(3, 2), torch.ones(3, 2))
    memory.keep({"model": "fine"}, fine)
    memory.refuse_another_model(model)
    (cell_path,), (fine_path,) = (directory.glob(f"{name}-*") for name in ("ddim", "fine"))
    return {
        "cell": Kind(cell_path, lambda: _unchanged(memory.recall_cell(key), cell)),
        "fine solve": Kind(fine_path, lambda: _unchanged(memory.recall_reference({"model": "fine"}), fine)),
        "cells' manifest": Kind(directory / "manifest.json", lambda: memory.refuse_another_model(model) or True),
    }


def _unchanged(found, whole):
    """Cells have a checksum, too."""
    for name, expected in vars(whole).items() if found else ():
        assert np.array_equal(getattr(found, name), expected)
    return found


def _tuned(schedule):
    """Fitted steps with errors on held-out noise."""
    one = TunedSteps(FittedSolver(schedule, ((1.0, 0.0),) * 3), FITTED, {OURS: np.ones(4), TODAY: np.ones(4)})
    return Tuned((one,), Today("ddim", 50, "karras"), 3, made_for=made_for(load_model("fashion")))


def _finding(directory):
    setting = {name: getattr(Setting(), name) for name in ("model", "steps", "prompts", "samples")}
    finding = PaperFinding("blend", Setting(), [{"a": 1.0}], {"b": 2.0}, "so it is")
    content = {"name": finding.name, "setting": setting, "verdict": finding.verdict, "numbers": {}, "rows": []}
    return write_json(directory / "finding.json", FINDING_FORMAT, content)


def _statistics(path):
    np.savez_compressed(path, mu=np.arange(3.0), sigma=np.eye(3))
    return path


def _network(directory):
    torch.manual_seed(0)
    config = unet_config(4, 4, (8, 8), classes=3) | {"norm_num_groups": 4, "attention_head_dim": 4}
    directory.mkdir()
    digest = write_halves(build_unet(config).state_dict(), directory / WEIGHTS)
    write_card(Card("network", Flow(), "flow", None, (1, 8, 8), 2, 3, digest), directory)
    (directory / CONFIG).write_text(json.dumps(config))
    return directory


def _checkpoint(directory):
    directory.mkdir()
    noted = {"identity": json.dumps({"steps": 9}), "step": "4", "seconds": "1.5"}
    save_file({"losses": torch.zeros(9), "average/weight": torch.ones(3)}, directory / CHECKPOINT, noted)
    return directory / CHECKPOINT


def _pairs(path):
    save_couplings(Couplings(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64), torch.ones(4, 2)), path)
    return path


def mutated(content, random):
    """The bytes of a file with something wrong: anywhere, or in the words of its own format."""
    ways = [_flipped, _overwritten, _cut_out, _repeated, _cut_off, _lengthened]
    ways += {b"{": [_other_json], b"P": [_other_array]}.get(content[:1], [_other_header]) * len(ways)
    return random.choice(ways)(content, random)


def _flipped(content, random):
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 4, 32])):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwritten(content, random):
    start, length = _stretch(content, random)
    return content[:start] + random.randbytes(length) + content[start + length :]


def _cut_out(content, random):
    start, length = _stretch(content, random)
    return content[:start] + content[start + length :]


def _repeated(content, random):
    start, length = _stretch(content, random)
    return content[: start + length] + content[start:]


def _cut_off(content, random):
    return content[: random.randrange(len(content))]


def _lengthened(content, random):
    return content + random.randbytes(random.randrange(1, 200))


def _stretch(content, random):
    start = random.randrange(len(content))
    return start, random.randrange(1, 1 + min(64, len(content) - start))


def _other_json(content, random):
    return json.dumps(_with_hostile_value(json.loads(content), random)).encode()


def _other_header(content, random):
    """A safetensors file with another value in its header, or in the JSON that its metadata holds."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    words = header.get("__metadata__", {})
    if "geosprint" in words and random.random() < 0.6:
        words["geosprint"] = json.dumps(_with_hostile_value(json.loads(words["geosprint"]), random))
    else:
        header = _with_hostile_value(header, random)
    said = json.dumps(header).encode()
    return len(said).to_bytes(8, "little") + said + data


def _other_array(content, random):
    """An npz file one of whose arrays says something else of itself, or is something else."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = random.choice(list(held))
    header = f"{{'descr': {random.choice(['<f8', '|O', '<i4', '<U9', 'V8'])!r}, 'fortran_order': False, 'shape': "
    header += random.choice(["(3,)", "(3, 3)", "(0,)", "(1000000000000,)", "(-3,)", "(99999, 99999)", "()", "(3.5,)"])
    text = (header + ", }\n").encode()
    magic = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little")
    held[name] = random.choice([magic + text + held[name][-24:], b"", held[name][:20], magic + text + bytes(10**7)])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in held.items():
            archive.writestr(name if random.random() < 0.9 else "../" + name, part)
    return made.getvalue()


def _with_hostile_value(tree, random):
    """The tree with one of its values replaced, removed, doubled or buried."""
    tree = copy.deepcopy(tree)
    place, parent, key = tree, None, None
    while isinstance(place, dict | list) and place and (parent is None or random.random() < 0.8):
        parent, key = place, random.choice(list(place) if isinstance(place, dict) else range(len(place)))
        place = parent[key]
    way = random.randrange(5)
    if parent is None or way <= 1:
        value = copy.deepcopy(random.choice(HOSTILE))
        if parent is None:
            return value
        parent[key] = value
    elif way == 2:
        del parent[key]
    elif way == 3:
        parent[key] = -place if isinstance(place, int | float) else [place, place]
    else:
        buried = place
        for _ in range(random.choice([1, 5, 200])):
            buried = [buried]
        parent[key] = buried
    return tree


class TooSlow(Exception):
    """One file took longer than MOST_SECONDS."""


def tried(kind, content):
    """Whether this content was loaded; anything but a refusal goes through."""
    kind.path.write_bytes(content)
    signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
    try:
        return kind.load() is not None
    except GeoSprintError:
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def fuzz(name, kind, count, seed):
    """How many of so many mutated files were loaded; the first that was neither loaded nor refused ends it all."""
    whole = kind.path.read_bytes()
    assert tried(kind, whole), f"the {name} file itself must be loaded"
    loaded = 0
    for number in range(count):
        content = mutated(whole, random.Random(f"{seed}/{name}/{number}"))
        try:
            loaded += tried(kind, content)
        except Exception:
            traceback.print_exc()
            kept = Path("out/bench") / f"fuzz-{name}-{number}{kind.path.suffix}"
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(content)
            sys.exit(f"{name} file {number} of seed {seed} was neither loaded nor refused; it is in {kept}")
    kind.path.write_bytes(whole)
    return loaded


def _too_slow(*_):
    raise TooSlow(f"more than {MOST_SECONDS} seconds for one file")


def _limit_memory():
    """From here on, an allocation of more than MOST_MEMORY fails."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY,) * 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="of each kind")
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory() as directory:
        made = kinds(Path(directory))
        _limit_memory()
        for name in asked.kinds or made:
            loaded = fuzz(name, made[name], asked.files, asked.seed)
            print(f"{name}: {asked.files} mutated files, {loaded} loaded, {asked.files - loaded} refused", flush=True)


if __name__ == "__main__":
    main()
