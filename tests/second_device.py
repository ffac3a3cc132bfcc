"""A second device for machines without one: tensors raise when they meet those of the CPU, or become float64 (mps).

Numbers are computed on the CPU. `with second_device():` must be around all that touches DEVICE.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("meta")  # the one that torch always knows and that computes nothing by itself
CROSSING = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default)
FROM_DATA = (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor)


class Elsewhere(torch.Tensor):
    """A tensor that says it is on the second device; its numbers are inside."""

    @staticmethod
    def __new__(cls, inner):
        kind = {
            "dtype": inner.dtype,
            "layout": inner.layout,
            "device": DEVICE,
            "storage_offset": inner.storage_offset(),
        }
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), strides=inner.stride(), **kind)

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        return f"Elsewhere({self.inner})"

    def tolist(self):
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), named=None):
        return _computed(function, args, named or {})


class _Arrival(TorchDispatchMode):
    """Whatever is made on the device, or moved to it."""

    def __torch_dispatch__(self, function, types, args=(), named=None):
        arrives = bool(named) and named.get("device") == DEVICE
        return _computed(function, args, named) if arrives else function(*args, **(named or {}))


class _Construction(TorchFunctionMode):
    """torch.tensor(..., device=DEVICE) never reaches the dispatcher."""

    def __torch_function__(self, function, types, args=(), named=None):
        named = dict(named or {})
        if function not in FROM_DATA:
            return function(*args, **named)
        device = named.pop("device", None)
        if function is torch.Tensor.new_tensor:
            like, *args = args
            device, named = device or like.device, {"dtype": like.dtype, **named}
            function = torch.tensor
        found = function(*args, **named)
        return found if device is None else found.to(device)


@contextmanager
def second_device() -> Iterator[torch.device]:
    """The device, for as long as it is there."""
    with _Construction(), _Arrival():
        yield DEVICE


def _computed(function, args, named):
    given = [part for part in tree_leaves((args, named)) if isinstance(part, torch.Tensor)]
    is_there = any(isinstance(part, Elsewhere) for part in given)
    here = [part for part in given if not isinstance(part, Elsewhere) and part.dim() > 0]
    if function in INDEXING and isinstance(args[0], Elsewhere):
        here = [part for part in here if part.dtype not in (torch.int64, torch.bool)]  # an index may come from the CPU
    if is_there and here and function not in CROSSING:
        raise RuntimeError(f"{function} was given tensors of two devices: {tuple(here[0].shape)} is on the CPU")
    if named.get("device") is not None:
        is_there = torch.device(named["device"]) == DEVICE
        named = {**named, "device": torch.device("cpu")}
    elif function in CROSSING:
        is_there = isinstance(args[0], Elsewhere)
    inner_args, inner_named = tree_map_only(Elsewhere, lambda part: part.inner, (args, named))
    found = function(*inner_args, **inner_named)
    arrays = [part for part in tree_leaves(found) if isinstance(part, torch.Tensor) and part.dim() > 0]
    if is_there and any(part.dtype == torch.float64 for part in arrays):  # mps refuses numbers too; ld3 makes some
        raise TypeError(f"{function} would make float64 there, which mps does not know")
    if not is_there:
        return args[0] if function is torch.ops.aten.copy_.default else found
    return return_and_correct_aliasing(function, args, named, tree_map_only(torch.Tensor, Elsewhere, found))
