"""How the figures of the model cards were measured: run this with a model's name, it prints one line of JSON.

python docs/models/measure.py fashion --steps 200
python docs/models/measure.py fashion --steps 50 --count 60 --grid docs/models/fashion.png
python docs/models/measure.py held-out --data /usr/share/datasets/fashion-mnist
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from geosprint.baselines import reference_timesteps
from geosprint.metrics.frechet import frechet_between
from geosprint.models.pretrained import ASSETS, load_classifier, load_pretrained, load_statistics
from geosprint.sampling import sample
from geosprint.training.classifier import feature_statistics
from geosprint.training.data import FASHION_TEST, read_fashion
from geosprint.training.loop import generator_of


def uniform_labels(count: int, classes: int = 10, seed: int = 0) -> Tensor:
    """Class numbers drawn uniformly, a function of the seed alone."""
    return torch.randint(classes, (count,), generator=generator_of(seed, "labels", 0))


def distance_to_training_set(images: Tensor, assets: Path = ASSETS) -> float:
    """Squared Fréchet distance of pictures to Fashion-MNIST's training set, in the classifier's features."""
    given, reference = feature_statistics(load_classifier(assets), images), load_statistics(assets)
    moments = (given.mean, given.covariance, reference.mean, reference.covariance)
    return frechet_between(*(torch.from_numpy(moment) for moment in moments))


def classes_recognised(images: Tensor, labels: Tensor, assets: Path = ASSETS) -> float:
    """The share of samples that the classifier takes for what they were asked to be."""
    with torch.no_grad():
        guesses = torch.cat([load_classifier(assets)(part).argmax(1) for part in images.split(500)])
    return float((guesses == labels).double().mean())


def save_grid(images: Tensor, path: Path, columns: int = 10, zoom: int = 2) -> None:
    """Pictures in [-1, 1] side by side, row by row, as a small PNG."""
    from PIL import Image

    rows = -(-len(images) // columns)
    size = images.shape[-1] + 2  # a dark line around each
    sheet = torch.full((images.shape[1], rows * size, columns * size), -1.0)
    for place, image in enumerate(images.clamp(-1, 1)):
        row, column = divmod(place, columns)
        top, left = row * size + 1, column * size + 1
        sheet[:, top : top + size - 2, left : left + size - 2] = image
    pixels = sheet.add(1).mul(127.5).round().byte().permute(1, 2, 0).squeeze(2).numpy()
    picture = Image.fromarray(pixels)
    picture.resize((picture.width * zoom, picture.height * zoom), Image.Resampling.NEAREST).save(path, optimize=True)


def measure(name: str, steps: int, count: int, solver: str, guidance: float, grid: Path | None) -> dict[str, object]:
    """Sample a network once and say how far the samples are from the training set."""
    labels = torch.arange(count) % 10 if grid else uniform_labels(count)
    begun = time.monotonic()
    model = load_pretrained(name, labels=labels.tolist(), guidance=guidance)
    images = sample(model, reference_timesteps(model.noise, steps), range(count), solver, batch=100)
    asked = {"steps": steps, "solver": solver, "guidance": guidance, "seconds": round(time.monotonic() - begun, 1)}
    if grid:
        save_grid(images, grid)
        return {"name": name, "count": count, **asked}
    return {"name": name, **figures(images, labels), **asked}


def figures(images: Tensor, labels: Tensor) -> dict[str, object]:
    """Distance to the training set and the share that the classifier recognises, of pictures cut to [-1, 1]."""
    shown = images.clamp(-1, 1)
    return {
        "count": len(shown),
        "frechet": round(distance_to_training_set(shown), 4),
        "recognised": round(classes_recognised(shown, labels), 4),
    }


def main() -> None:
    """Read the command line and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a shipped model, or held-out for the first test pictures")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--solver", default="ddim")
    parser.add_argument("--guidance", type=float, default=1.0)
    parser.add_argument("--grid", type=Path, help="save the samples as a picture instead, classes in columns")
    parser.add_argument("--data", type=Path, help="where Fashion-MNIST is, for held-out")
    given = parser.parse_args()
    if given.name == "held-out":
        held_out = read_fashion(given.data, FASHION_TEST).first(given.count)
        row = {"name": "held-out", **figures(held_out.images, held_out.labels)}
    else:
        row = measure(given.name, given.steps, given.count, given.solver, given.guidance, given.grid)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
