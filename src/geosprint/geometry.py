"""Inner products of a trajectory's points, and the score of every chord: all that the geometry depends on."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

CHORD_POINTS = 257
"""The table of chord scores grows with the square of its points: finer references are thinned to this many."""

CHORD_BEGINNINGS = 16
"""Chords from so many neighbouring states are scored together: more save no time, and cost accuracy."""


def gram_of_centred(points: Tensor, scale: Tensor | float = 1.0) -> Array:
    """Inner products of every trajectory's points / scale about their mean: all that the geometry depends on.

    The products are taken between *increments*, which are short, so that rounding is relative to
    a step and not to the whole trajectory; sums of them in float64 give every other product.
    """
    if points.device.type != "cpu":
        steps = torch.diff(points, dim=-2).div_(scale)
        return gram_from_increment_products((steps @ steps.mT).double().cpu().numpy())
    # NumPy knows that a product with its own transpose is symmetric: half the work. It does the rest as well,
    # because the threads of two libraries, taking turns on the same cores, wait for each other.
    small = np.diff(points.numpy(), axis=-2)
    small /= scale.numpy() if isinstance(scale, Tensor) else scale
    return gram_from_increment_products((small @ np.swapaxes(small, -1, -2)).astype(np.float64))


def gram_from_increment_products(products: Array) -> Array:
    """Inner products of centred points (..., N+1, N+1) from those of their increments (..., N, N)."""
    *batch, n, _ = products.shape
    gram = np.zeros((*batch, n + 1, n + 1))
    np.cumsum(np.cumsum(products, axis=-1), axis=-2, out=gram[..., 1:, 1:])
    means = gram.mean(axis=-1, keepdims=True)
    gram -= means
    gram -= np.swapaxes(means, -1, -2)
    gram += means.mean(axis=-2, keepdims=True)
    return gram


def mean_chord_scores(gram: Array) -> tuple[Array, NDArray[np.intp]]:
    """Mean over trajectories of the score lost between every two states kept with none between them.

    Entry (i, l) sums r² of the states i < j < l to the line through states i and l, as a share of the
    trajectory's variance. The score of any schedule is a sum of such entries.
    """
    last = gram.shape[1] - 1
    chosen = np.unique(np.round(np.linspace(0, last, min(last, CHORD_POINTS - 1) + 1)).astype(np.intp))
    table = np.zeros((len(chosen), len(chosen)))
    for one in gram:
        one = one[np.ix_(chosen, chosen)]
        variance = np.trace(one) - one.sum() / len(chosen)
        table += _chord_losses(one) / variance / len(gram)
    return table, chosen


def _chord_losses(gram: Array) -> Array:
    """Sum of squared distances to the chord (i, l) of the points between, for one trajectory.

    With A the inner products about point i, that is the sum over i < j < l of A_jj - A_jl² / A_ll. Chords that
    begin near one another share the products O about one of their beginnings: A_jl = O_jl - O_ji + O_ii - O_il,
    and the sums of squares are products of matrices. Where those would cancel, each chord is scored by itself.
    """
    points = len(gram)
    losses, later = np.zeros((points, points)), np.triu(np.ones((points, points)), 1)  # 1 where column > row
    for first in range(0, points - 2, CHORD_BEGINNINGS):
        offset = gram[first, first:] - 0.5 * gram[first, first]
        about = gram[first:, first:] - offset[:, None] - offset  # O
        beginnings = about[:CHORD_BEGINNINGS]  # row i: O_ij
        own = beginnings.diagonal()[:, None]
        after = later[: len(beginnings), : len(about)]  # row i: 1 where j > i
        squares = (own - 2 * beginnings + about.diagonal()) * after  # A_jj
        shift = own - beginnings
        rows, columns = beginnings * after, about * later[: len(about), : len(about)]  # column l: O_jl of points j < l
        each = np.stack([after, rows, rows**2, squares])
        count, sum_rows, squared_rows, sum_squares = np.cumsum(each, axis=-1) - each  # over i < j < l
        positive = after @ columns**2 + squared_rows + count * shift**2
        along = positive - 2 * rows @ columns + 2 * shift * (after @ columns - sum_rows)
        found = np.maximum(sum_squares - along / np.where(squares > 0, squares, np.inf), 0) * after
        for i in np.nonzero((positive > 100 * np.trace(gram) * squares).any(axis=1))[0]:
            found[i, i + 1 :] = _losses_of_chords_from(gram[first + i :, first + i :])
        losses[first : first + len(own), first:] = found
    return losses


def _losses_of_chords_from(gram: Array) -> Array:
    """Losses of the chords from the first of these points to every other."""
    about = gram[1:, 1:] - gram[1:, 0, None] - gram[0, 1:] + gram[0, 0]
    squares, before = about.diagonal(), np.triu(about, 1)  # column l: the points j < l
    along = np.einsum("jl,jl->l", before, before) / np.where(squares > 0, squares, np.inf)
    return np.maximum(np.append(0.0, np.cumsum(squares)[:-1]) - along, 0)
