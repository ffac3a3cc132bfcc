"""How the figures of the model cards were measured: run this with a model's name, it prints one line of JSON.

python -m docs.models.measure fashion --steps 200
python -m docs.models.measure fashion --steps 50 --count 60 --grid docs/models/fashion.png
python -m docs.models.measure held-out --data /usr/share/datasets/fashion-mnist
python -m docs.models.measure cifar10 --steps 50 --count 300 --data DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
from torch import Tensor

from geosprint.baselines import reference_timesteps
from geosprint.metrics.distances import frechet_between, frechet_distance, kernel_distance
from geosprint.metrics.features import load_features
from geosprint.models.networks import ASSETS, load_classifier, load_pretrained, load_statistics, read_card
from geosprint.paper.learning import generator_of
from geosprint.sampling import sample
from recipes.networks.classifier import feature_statistics
from recipes.networks.data import CIFAR10_TEST, CIFAR10_TRAIN, FASHION_TEST, read_cifar10, read_fashion


def uniform_labels(count: int, classes: int = 10, seed: int = 0) -> Tensor:
    """Class numbers drawn uniformly, a function of the seed alone."""
    return torch.randint(classes, (count,), generator=generator_of(seed, "labels", 0))


def distance_to_training_set(images: Tensor, assets: Path = ASSETS) -> float:
    """Squared Fréchet distance of pictures to Fashion-MNIST's training set, in the classifier's features."""
    given = feature_statistics(load_classifier(assets), images)
    return frechet_between(*(torch.from_numpy(moment) for moment in (given.mean, given.covariance)), *reference(assets))


def reference(assets: Path) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the training set's features."""
    statistics = load_statistics(assets)
    return torch.from_numpy(statistics.mean), torch.from_numpy(statistics.covariance)


def photo_figures(images: Tensor, data: Path, compared_with: int = 500) -> dict[str, object]:
    """Distances to the first training pictures of CIFAR-10 in Inception's features; those of test pictures beside."""
    features = load_features("inception")
    real = features(read_cifar10(data, CIFAR10_TRAIN).first(compared_with).images)
    held_out = read_cifar10(data, CIFAR10_TEST).first(len(images)).images
    found: dict[str, object] = {"count": len(images), "compared_with": compared_with}
    for name, pictures in (("", images), ("held_out_", held_out)):
        seen = features(pictures)
        kid = kernel_distance(seen, real)
        found |= {f"{name}kid": round(kid.value, 4), f"{name}kid_error": round(kid.standard_error, 4)}
        found[f"{name}frechet"] = round(frechet_distance(seen, real), 1)
    return found


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


def measure(
    name: str, steps: int, count: int, solver: str, guidance: float, grid: Path | None, data: Path | None
) -> dict[str, object]:
    """Sample a network once and say how far the samples are from the training set."""
    labels = torch.arange(count) % 10 if grid else uniform_labels(count)
    begun = time.monotonic()
    has_classes = read_card(ASSETS / name).classes is not None
    model = load_pretrained(name, labels=labels.tolist() if has_classes else None, guidance=guidance)
    images = sample(model, reference_timesteps(model.noise, steps), range(count), solver, batch=100)
    asked = {"steps": steps, "solver": solver, "guidance": guidance, "seconds": round(time.monotonic() - begun, 1)}
    if grid:
        save_grid(images, grid)
        return {"name": name, "count": count, **asked}
    if not has_classes:
        assert data is not None, "--data must say where CIFAR-10 is"
        return {"name": name, **photo_figures(images, data), **asked}
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
    parser.add_argument("--data", type=Path, help="where the data set is, for held-out and cifar10")
    given = parser.parse_args()
    if given.name == "held-out":
        held_out = read_fashion(given.data, FASHION_TEST).first(given.count)
        row = {"name": "held-out", **figures(held_out.images, held_out.labels)}
    else:
        asked = (given.steps, given.count, given.solver, given.guidance, given.grid, given.data)
        row = measure(given.name, *asked)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
