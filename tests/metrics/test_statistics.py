from __future__ import annotations

import numpy as np
import pytest

from geosprint.errors import FileError
from geosprint.metrics.features import read_statistics


@pytest.mark.parametrize("names", [("mu", "sigma"), ("mean", "covariance")])
def test_statistics_are_read_under_both_names(tmp_path, names):
    mean, covariance = np.arange(3.0), np.diag([1.0, 2.0, 3.0]).astype(np.float32)
    np.savez(tmp_path / "data.npz", **dict(zip(names, (mean, covariance), strict=True)))
    held = read_statistics(tmp_path / "data.npz")
    np.testing.assert_array_equal(held.mean, mean)
    np.testing.assert_array_equal(held.covariance, covariance)
    assert held.covariance.dtype == np.float64


@pytest.mark.parametrize(
    "content",
    [{"mu": np.zeros(3)}, {"mu": np.zeros(3), "sigma": np.eye(2)}, {"mu": np.zeros((3, 1)), "sigma": np.eye(3)}],
)
def test_statistics_that_do_not_fit_are_refused(tmp_path, content):
    np.savez(tmp_path / "data.npz", **content)
    with pytest.raises(FileError, match="must hold mu"):
        read_statistics(tmp_path / "data.npz")


def test_what_is_no_npz_is_refused(tmp_path):
    (tmp_path / "data.npz").write_text("hello")
    with pytest.raises(FileError, match="must be an npz"):
        read_statistics(tmp_path / "data.npz")
    with pytest.raises(FileError, match="cannot read"):
        read_statistics(tmp_path / "missing.npz")
