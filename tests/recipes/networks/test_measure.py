from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from PIL import Image

from geosprint.metrics.distances import frechet_distance
from geosprint.models.networks import FashionClassifier, load_classifier
from geosprint.paper.learning import TrainingPlan
from recipes.networks.export import export_classifier
from recipes.networks.loop import fit

SCRIPT = Path(__file__).parents[3] / "docs" / "models" / "measure.py"
measure = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_distance_is_the_frechet_distance_of_features(tmp_path):
    torch.manual_seed(0)
    classifier = FashionClassifier((8, 8, 8))
    real, other = torch.rand(40, 1, 28, 28) - 1, torch.rand(30, 1, 28, 28)
    fit(
        classifier,
        lambda network, batch, generator: network(batch[0]).mean(),
        (real,),
        TrainingPlan(steps=1),
        tmp_path / "run",
    )
    export_classifier(tmp_path / "run", real, (8, 8, 8), tmp_path / "fashion-classifier")
    shipped = load_classifier(tmp_path)
    expected = frechet_distance(shipped.features(other), classifier.features(real).detach())
    assert abs(measure.distance_to_training_set(other, tmp_path) / expected - 1) < 1e-3
    guesses = shipped(other).argmax(1)
    assert measure.classes_recognised(other, guesses, tmp_path) == 1
    assert measure.classes_recognised(other, (guesses + 1) % 10, tmp_path) == 0


def test_labels_are_drawn_uniformly():
    labels = measure.uniform_labels(50_000)
    assert (labels.bincount(minlength=10) / 50_000 - 0.1).abs().max() < 0.01


def test_grid_puts_pictures_row_by_row(tmp_path):
    images = torch.linspace(-1, 1, 5).view(5, 1, 1, 1).expand(5, 1, 4, 4)
    measure.save_grid(images, tmp_path / "grid.png", columns=3, zoom=1)
    pixels = np.asarray(Image.open(tmp_path / "grid.png"))
    assert pixels.shape == (2 * 6, 3 * 6)
    assert pixels[8, 2] == 191  # the fourth picture, 0.5, opens the second row
