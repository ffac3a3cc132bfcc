"""The classifier whose penultimate layer gives the features of Fréchet distances on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from geosprint.models.networks import FashionClassifier, FeatureStatistics
from geosprint.paper.learning import TrainingPlan
from recipes.networks.data import ImageSet
from recipes.networks.loss import mirror_half

CLASSIFIER_WIDTHS = (32, 64, 96)
CLASSIFIER_PLAN = TrainingPlan(steps=4000, batch=128, learning_rate=1.5e-3, weight_decay=0.05)


def classifier_loss(network: nn.Module, batch: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    """Cross-entropy, half of the pictures mirrored."""
    images, labels = batch
    return F.cross_entropy(network(mirror_half(images, generator)), labels)


@torch.no_grad()
def accuracy(classifier: nn.Module, pictures: ImageSet, batch: int = 500) -> float:
    """The share of pictures whose class is guessed."""
    guesses = torch.cat([classifier(part).argmax(1) for part in pictures.images.split(batch)])
    return float((guesses == pictures.labels).double().mean())


@torch.no_grad()
def feature_statistics(classifier: FashionClassifier, images: Tensor, batch: int = 500) -> FeatureStatistics:
    """Mean and covariance of the classifier's features over these pictures."""
    seen = torch.cat([classifier.features(part) for part in images.split(batch)]).double().numpy()
    return FeatureStatistics(seen.mean(0), np.cov(seen, rowvar=False), len(seen))
