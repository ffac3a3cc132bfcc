from __future__ import annotations

import numpy as np
import pytest
import torch

from geosprint.models.networks import FashionClassifier, load_classifier, load_statistics
from geosprint.paper.learning import TrainingPlan
from recipes.networks.classifier import accuracy, classifier_loss, feature_statistics
from recipes.networks.data import ImageSet
from recipes.networks.export import export_classifier
from recipes.networks.loop import fit


def two_classes(count=48):
    labels = torch.arange(count) % 2
    images = torch.where(labels.view(-1, 1, 1, 1) == 0, -0.5, 0.5).expand(count, 1, 28, 28).clone()
    images[:, :, :14] = -1
    return ImageSet(images, labels)


def test_classifier_learns_two_classes_and_survives_its_files(tmp_path):
    torch.manual_seed(0)
    pictures, classifier = two_classes(), FashionClassifier((8, 8, 8))
    plan = TrainingPlan(steps=60, batch=16, learning_rate=1e-2, warmup=1, ema_decay=0.5)
    run = fit(classifier, classifier_loss, (pictures.images, pictures.labels), plan, tmp_path / "run")
    assert run.losses[-5:].mean() < 0.5 * run.losses[:3].mean()
    export_classifier(tmp_path / "run", pictures.images, (8, 8, 8), tmp_path / "fashion-classifier")
    loaded, read = load_classifier(tmp_path), load_statistics(tmp_path)
    assert accuracy(loaded, pictures) == 1
    assert read.mean == pytest.approx(loaded.features(pictures.images).double().numpy().mean(0), abs=1e-6)
    assert read.count == 48


def test_statistics_are_those_of_numpy():
    torch.manual_seed(0)
    classifier, images = FashionClassifier((8, 8, 8)), torch.randn(30, 1, 28, 28)
    features = classifier.features(images).detach().double().numpy()
    statistics = feature_statistics(classifier, images, batch=7)
    assert statistics.mean == pytest.approx(features.mean(0), abs=1e-6)
    assert statistics.covariance == pytest.approx(np.cov(features.T), abs=1e-6)
