"""Feeds mutated files of every kind to the verbs that use them: each must be used, or refused with a GeoSprintError.

`python -m benchmarks.fuzz` prints how many were used and how many refused. Where several verbs take a kind of file, one
file after another goes to the next of them. Any other exception, an allocation of more than MOST_MEMORY and more
than MOST_SECONDS of processor time for one file are foreign: they are counted, shown and kept in out/bench. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a verb would look for idle cores, which takes a tenth of a second

import numpy as np
import torch
import typer
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from safetensors.torch import save_file

from geosprint import FittedSolver, GeoSprintError, build_schedule, extract, load_model, record
from geosprint.cli import UsageError, app
from geosprint.models.fingerprint import made_for
from geosprint.models.networks import CARD, CONFIG, WEIGHTS, Card, write_card
from geosprint.models.unet import build_unet
from geosprint.noise import Flow
from geosprint.runs.store import packed, unpacked
from geosprint.tuned import FITTED, OURS, TODAY, Today, Tuned, TunedSteps
from recipes.networks.export import averaged_weights, write_halves
from recipes.networks.loop import CHECKPOINT, steps_done
from recipes.networks.recipe import unet_config
from recipes.networks.reflow import Couplings, load_couplings, save_couplings
from recipes.scenes.autoencoder import new_autoencoder
from recipes.scenes.diffusion import Denoiser, new_unet
from recipes.scenes.export import export_pipeline
from recipes.scenes.text import new_text_encoder, new_tokenizer

COMMAND = typer.main.get_command(app)
MOST_MEMORY = 1 << 30
MOST_SECONDS = 20

HOSTILE = [
    None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e308, 10**6, 10**9, 2**31, 2**63, 10**30, "", "0", "x" * 1000,
    "../../etc/passwd", "/etc/passwd", "\u0000", "nan", [], {}, [[]], [None], [0], [-1], {"a": 1}, [10**9, 10**9],
    float("nan"), float("inf"), list(range(1000)), [[]] * 100_000, "1" * 100_000,
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A valid file, and what is done with it, in turns."""

    path: Path
    uses: tuple[Callable[[], object], ...]
    mutate: Callable[[bytes, random.Random], bytes]


def kinds(directory):
    """One of each kind of file that this package reads, and the verbs that read it."""
    profile = extract(load_model("mixture"), 4, 12, batch=2, work=directory / "work")
    walks = record(load_model("mixture"), range(4), 8, predictions=True)
    schedule, tuned, shown = build_schedule(profile, 5), _tuned(build_schedule(profile, 3)), directory / "shown"
    made = {
        "profile": (profile.save(shown / "profile" / "profile.json"), *LOOKING, *SCHEDULING),
        "schedule": (schedule.save(shown / "schedule" / "schedule.json"), *LOOKING, *_stepping("mixture")),
        "flow schedule": (_flow_schedule(shown / "flow" / "schedule.json"), *_stepping("fashion-flow")),
        "tuned": (tuned.save(shown / "tuned" / "tuned.json"), *LOOKING, *_stepping("mixture")),
        "trajectories": (walks.save(directory / "walks" / "walks.safetensors"), "extract FILE -o OUT.json"),
        "states": (walks.save_states(directory / "states" / "states.safetensors"), "extract FILE -o OUT.json"),
        "manifest": (directory / "work" / "manifest.json", *RESUMING),
        "shard": (directory / "work" / "shard-000000-000001.safetensors", *RESUMING),
        "finding": (_finding(shown / "finding"), "claims DIR -o OUT.md", "report DIR -o OUT.html"),
        "prompts": (_prompts(directory / "prompts"), "sample TEXT --prompts FILE --steps 2 -n 1 -o OUT.safetensors"),
        "statistics": (_statistics(directory / "statistics"), f"{COMPARE} --statistics FILE -o COMPARED"),
        "card": (_network(directory / "network") / CARD, DRAW),
        "config": (directory / "network" / CONFIG, DRAW),
        "weights": (directory / "network" / WEIGHTS, DRAW),
    }
    compared, pipeline, text = directory / "compared", _pipeline(directory / "pipeline"), _text(directory / "text")
    _run(f"{COMPARE} -o {compared}".split())
    whole = f"{COMPARE} -o COMPARED", "report COMPARED -o OUT.html"
    made |= {
        "comparison": (compared / "summary.json", *whole),
        "results": (compared / "results.csv", *whole),
        "cell": (next(compared.glob("cells/ddim-*")), *whole),
        "fine solve": (next(compared.glob("cells/fine-*")), *whole),
        "cells' manifest": (compared / "cells" / "manifest.json", *whole),
        "model index": (pipeline / "model_index.json", *PIPELINE),
        "scheduler": (pipeline / "scheduler" / "scheduler_config.json", *PIPELINE),
        "unet": (pipeline / "unet" / "config.json", *PIPELINE),
        "unet weights": (pipeline / "unet" / "diffusion_pytorch_model.safetensors", *PIPELINE),
        "tokenizer": (text / "tokenizer" / "tokenizer.json", *TEXT),
        "tokenizer config": (text / "tokenizer" / "tokenizer_config.json", *TEXT),
        "text encoder": (text / "text_encoder" / "config.json", *TEXT),
        "text encoder weights": (text / "text_encoder" / "model.safetensors", *TEXT),
        "vae": (text / "vae" / "config.json", *TEXT),
        "call cache": (_calls(directory / "calls"), FIT),
        "call cache's manifest": (directory / "calls" / "manifest.json", FIT),
    }
    found = {name: _kind(path, verbs, directory) for name, (path, *verbs) in made.items()}
    forged = {f"forged {name}": replace(found[name], mutate=_forged) for name in PARTS}
    checkpoint, pairs = _checkpoint(directory / "run"), _pairs(directory / "pairs")
    trained = lambda: (steps_done(checkpoint.parent), averaged_weights(checkpoint.parent))  # noqa: E731
    return {
        **found,
        **forged,
        "checkpoint": Kind(checkpoint, (trained,), mutated),
        "pairs": Kind(pairs, (lambda: load_couplings(pairs),), mutated),
    }


COMPARE = (
    "compare mixture --methods quadratic --steps 2 -n 10 --trajectories 4 --reference-steps 8 --fine-steps 4 --ruler 3"
)
RESUMING = (
    "merge DIR -o OUT.json",
    "extract mixture --trajectories 4 --reference-steps 12 --batch 2 --work DIR -o OUT.json",
)
DRAW = "sample DIR --steps 2 -n 1 -o OUT.safetensors"
PIPELINE = (DRAW.replace("DIR", "PIPELINE"), "extract PIPELINE --trajectories 1 --reference-steps 3 -o OUT.json")


TEXT = (
    "sample TEXT --prompts PROMPTS --steps 2 -n 1 -o OUT.png",
    "extract TEXT --prompts PROMPTS --trajectories 1 --reference-steps 3 -o OUT.json",
)
FIT = "fit mixture --steps 2 --budget-nfe 776 --work DIR -o OUT.json"
PARTS = ("shard", "cell", "fine solve", "call cache")


LOOKING = ("inspect FILE", "inspect FILE --json", "report DIR -o OUT.html")
SCHEDULING = (
    "schedule FILE --steps 5 -o OUT.json",
    "budget FILE --target-score 0.01 -o OUT.json",
    "inspect FILE -o OUT.png",
)


def _stepping(model):
    tools = ("diffusers", "comfyui", "comfyui-node", "a1111", "sdcpp", "kdiffusion", "json")
    return *(f"export FILE --to {tool}" for tool in tools), f"sample {model} --schedule FILE -n 1 -o OUT.safetensors"


def _kind(path, verbs, directory):
    """The verbs on this file; what they write goes where nothing is read."""
    places = {"FILE": path, "DIR": path.parent, "PROMPTS": directory / "prompts" / "prompts.txt"}
    places |= {name: directory / name.lower() for name in ("PIPELINE", "TEXT", "COMPARED")}

    def use(verb):
        words = [str(places.get(word, word)) for word in verb.split()]
        return lambda: _run([word.replace("OUT.", f"{directory}/made/out.") for word in words])

    return Kind(path, tuple(map(use, verbs)), mutated)


def _run(words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        COMMAND.main(words, standalone_mode=False)
    return True


def _flow_schedule(path):
    profile = extract(load_model("fashion-flow"), 2, 6)
    return build_schedule(profile, 3).save(path)


def _prompts(directory):
    directory.mkdir()
    path = directory / "prompts.txt"
    path.write_text("a red cat\nthe old boat\n")
    return path


def _pipeline(directory):
    torch.manual_seed(0)
    blocks = {"down_block_types": ("DownBlock2D",), "up_block_types": ("UpBlock2D",), "block_out_channels": (8,)}
    unet = UNet2DModel(sample_size=4, in_channels=1, out_channels=1, layers_per_block=1, norm_num_groups=4, **blocks)
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(directory)
    return directory


def _text(directory):
    torch.manual_seed(0)
    tokenizer = new_tokenizer()
    denoiser = Denoiser(new_unet((16, 16, 16), 16), new_text_encoder(tokenizer, 16, 1))
    export_pipeline(new_autoencoder((8, 8, 8)), denoiser, tokenizer, directory)
    return directory


def _calls(directory):
    _run(FIT.replace("DIR", str(directory)).replace("OUT.", f"{directory.parent}/made/out.").split())
    return next(directory.glob("*.safetensors"))


def _forged(content, random):
    """A part with something wrong inside and a checksum that agrees: of somebody who knows the format."""
    with tempfile.TemporaryDirectory() as directory:
        whole = Path(directory) / "whole"
        whole.write_bytes(content)
        tensors, about = unpacked(whole)
    if random.random() < 0.5:
        kept = {name: about.pop(name) for name in ("job", "key") if name in about}
        about = _with_hostile_value(about, random)
        about = {**about, **kept} if isinstance(about, dict) else kept
    else:
        name = random.choice(sorted(tensors))
        own = tensors[name]
        empty, scalar = torch.empty(0, *own.shape[1:]), torch.tensor(1.0)
        hostile = [empty, scalar, own * torch.nan, own * 0, own * 1e30, -own, own[:1], own.flatten(), own.int(), None]
        tensors[name] = random.choice(hostile)
        if tensors[name] is None or random.random() < 0.2:
            tensors["other"] = own
            del tensors[name]
    return packed(tensors, about)


def _tuned(schedule):
    """Fitted steps with errors on held-out noise."""
    one = TunedSteps(FittedSolver(schedule, ((1.0, 0.0),) * 3), FITTED, {OURS: np.ones(4), TODAY: np.ones(4)})
    return Tuned((one,), Today("ddim", 50, "karras"), 3, made_for=made_for(load_model("fashion")))


def _finding(directory):
    directory.mkdir(parents=True)
    return Path(shutil.copy("docs/results/reproduce/digits/blend/finding.json", directory))


def _statistics(directory):
    directory.mkdir()
    path = directory / "statistics.npz"
    np.savez_compressed(path, mu=np.arange(2.0), sigma=np.eye(2))
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


def _pairs(directory):
    directory.mkdir()
    path = directory / "pairs.safetensors"
    save_couplings(Couplings(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64), torch.ones(4, 2)), path)
    return path


def mutated(content, random):
    """The bytes of a file with something wrong: anywhere, or in the words of its own format."""
    ways = [_flipped, _overwritten, _cut_out, _repeated, _cut_off, _lengthened]
    own = {b"{": _other_json, b"P": _other_array, b"a": _other_text, b"m": _other_text}.get(content[:1], _other_header)
    ways += [own] * len(ways)
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


def _other_text(content, random):
    """A line, or a field of it, that is something else."""
    lines = content.decode().split("\n")
    at = random.randrange(len(lines))
    fields = lines[at].split(",")
    fields[random.randrange(len(fields))] = str(random.choice(HOSTILE[:-2]))
    lines[at] = ",".join(fields)
    return "\n".join(lines).encode()


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


class TooSlow(BaseException):
    """One file took longer than MOST_SECONDS; nobody may take it for a fault of the file."""


def tried(kind, content, use):
    """Whether this content was used; anything but a refusal goes through."""
    kind.path.write_bytes(content)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        return use() is not None
    except (GeoSprintError, UsageError):
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def fuzz(name, kind, count, seed, directory):
    """How many of so many mutated files were used, and how many ended in anything but a refusal."""
    whole = kind.path.read_bytes()
    beside = Path(shutil.copytree(kind.path.parent, directory / "beside"))
    works = [tried(kind, whole, use) for use in kind.uses]  # some tools take no coefficients
    assert any(works), f"the {name} file itself must be used"
    used = foreign = 0
    for number in range(count):
        content = kind.mutate(whole, random.Random(f"{seed}/{name}/{number}"))
        try:
            used += tried(kind, content, kind.uses[number % len(kind.uses)])
        except (Exception, TooSlow):
            foreign += 1
            if foreign <= 3:
                traceback.print_exc()
                kept = Path("out/bench") / f"fuzz-{name}-{number}{kind.path.suffix}"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(content)
                print(f"{name} file {number} of seed {seed} was neither used nor refused; it is in {kept}", flush=True)
        _put_back(beside, kind.path.parent)
    shutil.rmtree(beside)
    return used, foreign


def _put_back(whole, directory):
    """A verb may have made again what it found damaged."""
    for path in directory.rglob("*"):
        if path.is_file() and not (whole / path.relative_to(directory)).exists():
            path.unlink()
    shutil.copytree(whole, directory, dirs_exist_ok=True)


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
    signal.signal(signal.SIGPROF, _too_slow)
    with tempfile.TemporaryDirectory() as directory:
        made, foreign = kinds(Path(directory)), 0
        _limit_memory()
        for name in asked.kinds or made:
            used, strange = fuzz(name, made[name], asked.files, asked.seed, Path(directory))
            refused = asked.files - used - strange
            print(f"{name}: {asked.files} mutated files, {used} used, {refused} refused, {strange} foreign", flush=True)
            foreign += strange
        print(f"{len(asked.kinds or made)} kinds, {foreign} foreign exceptions")
    sys.exit(foreign > 0)


if __name__ == "__main__":
    main()
