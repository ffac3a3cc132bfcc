from __future__ import annotations

import torch

from recipes.networks.reflow import Couplings, load_couplings, save_couplings


def test_couplings_survive_their_file(tmp_path):
    couplings = Couplings(torch.randn(3, 2), torch.tensor([1, 2, 3]), torch.randn(3, 2))
    save_couplings(couplings, tmp_path / "pairs.safetensors")
    read = load_couplings(tmp_path / "pairs.safetensors")
    assert all(torch.equal(getattr(read, part), getattr(couplings, part)) for part in ("samples", "labels", "noise"))
