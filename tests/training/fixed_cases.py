"""A call for each operator that never varies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

SHAPES = {"small": (1, 2, 3, 5), "odd": (3, 7, 11, 13), "large": (3, 7, 57, 59)}  # the last has three tasks
Call = Callable[[torch.Tensor, torch.Tensor], Any]
aten = torch.ops.aten


def _unary(*names: str) -> dict[str, Call]:
    return {name: lambda x, y, name=name: getattr(aten, name)(x) for name in names}


def _binary(*names: str) -> dict[str, Call]:
    return {name: lambda x, y, name=name: getattr(aten, name)(x, y) for name in names}


def _integers(*names: str) -> dict[str, Call]:
    return {name: lambda x, y, name=name: getattr(aten, name)(_whole(x), _whole(y)) for name in names}


def _shifts(*names: str) -> dict[str, Call]:
    return {name: lambda x, y, name=name: getattr(aten, name)(_whole(x), _whole(y).abs() % 7) for name in names}


def _whole(x: torch.Tensor) -> torch.Tensor:
    return (x * 8).to(torch.int64)


def _index(x: torch.Tensor, extent: int) -> torch.Tensor:
    return (x * 100).to(torch.int64).abs() % extent


def _rows(x: torch.Tensor) -> torch.Tensor:
    return _index(x.reshape(-1)[:9], x.shape[1])


def _sorted(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)[:50].sort()[0]


def _unscaled(*gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return gradients without the scale of a GradScaler, and whether one is infinite or NaN."""
    copies, is_infinite = [gradient.clone() for gradient in gradients], torch.zeros(1)
    aten._amp_foreach_non_finite_check_and_unscale_(copies, is_infinite, torch.tensor(0.3))
    return *copies, is_infinite


ARITHMETIC: dict[str, Call] = {
    **_unary("abs", "ceil", "floor", "frac", "neg", "reciprocal", "round", "sgn", "sign", "trunc", "relu"),
    "frexp": lambda x, y: [aten.frexp.Tensor(part) for part in (x, x * 2.0**-130, y.clamp(min=0))],
    **_unary("hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "nan_to_num", "hardshrink"),
    **_binary("add", "sub", "mul", "div", "rsub"),
    **_binary("floor_divide", "copysign", "hardsigmoid_backward"),
    "clamp": lambda x, y: (aten.clamp(x, -0.5, 0.3), *[aten.clamp(x * 0, zero, zero) for zero in (0.0, -0.0)]),
    "clamp_max": lambda x, y: (aten.clamp_max(x, 0.3), *[aten.clamp_max(x * 0, zero) for zero in (0.0, -0.0)]),
    "clamp_min": lambda x, y: (aten.clamp_min(x, 0.3), *[aten.clamp_min(x * 0, zero) for zero in (0.0, -0.0)]),
    **{
        name: lambda x, y, name=name: [getattr(aten, name)(part, dim) for part in (x, x.bfloat16()) for dim in range(4)]
        for name in ("cumsum", "cumprod")
    },
    "threshold": lambda x, y: aten.threshold(x, 0.1, 0.2),
    "threshold_backward": lambda x, y: aten.threshold_backward(x, y, 0.0),
    "_amp_foreach_non_finite_check_and_unscale": _unscaled,
    "_amp_update_scale": lambda x, y: aten._amp_update_scale_(
        torch.tensor(3.0), torch.tensor(1, dtype=torch.int32), torch.tensor(0.0), 1.7, 0.3, 2
    ),
    "leaky_relu_backward": lambda x, y: aten.leaky_relu_backward(x, y, 0.2, False),
    "_prelu_kernel": lambda x, y: aten._prelu_kernel(x, y[:1, :, :1, :1]),
    "_prelu_kernel_backward": lambda x, y: aten._prelu_kernel_backward(x, y, y[:1, :, :1, :1]),
    "native_dropout_backward": lambda x, y: aten.native_dropout_backward(x, y > 0, 1.25),
}


def _pooled(x: torch.Tensor, axes: int) -> Any:
    x = x if axes == 2 else x.unsqueeze(2)
    x = x.detach().requires_grad_()
    kernel, stride, pad = ((2,) * axes, (1,) * axes, (1,) * axes) if axes == 2 else ((1, 2, 2), (1, 1, 1), (0, 1, 1))
    found = (F.max_pool2d if axes == 2 else F.max_pool3d)(x, kernel, stride, pad, return_indices=True)
    return (*found, torch.autograd.grad(found[0], x, found[0].detach() * 0.37))


def _largest(x: torch.Tensor, axes: int) -> tuple[Any, ...]:
    """Return an adaptive max pool with overlapping windows, its indices, and the gradient of its input."""
    x = (x if axes == 2 else x.unsqueeze(2)).detach().requires_grad_()
    sizes = (*((1,) * (axes - 2)), 3, 2)
    found = (F.adaptive_max_pool2d if axes == 2 else F.adaptive_max_pool3d)(x, sizes, True)
    return (*found, torch.autograd.grad(found[0], x, found[0].detach() * 0.37)[0])


def _averaged(x: torch.Tensor, axes: int) -> Any:
    x = _of_rank(x, axes).detach().requires_grad_()
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[axes]
    found = pool(x, 2, 1, 1)
    return found, torch.autograd.grad(found, x, _uneven(found))[0]


def _uneven(like: torch.Tensor) -> torch.Tensor:
    """Return a cotangent whose neighbours differ, so that the order of sums matters."""
    values = (torch.arange(like.numel()) % 97).to(torch.float64) * 0.37
    return torch.empty_like(like).copy_(values.reshape(like.shape))


def _padded_back(x: torch.Tensor, axes: int, mode: str) -> torch.Tensor:
    x = _of_rank(x, axes).detach().requires_grad_()
    found = F.pad(x, (1,) * 2 * axes, mode)
    return torch.autograd.grad(found, x, _uneven(found))[0]


def _enlarged_back(x: torch.Tensor, axes: int, mode: str) -> torch.Tensor:
    x = _of_rank(x, axes).detach().requires_grad_()
    found = F.interpolate(x, scale_factor=2.5, mode=mode)
    return torch.autograd.grad(found, x, _uneven(found))[0]


COMPARISONS: dict[str, Call] = {
    **_binary("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"),
    **_unary("isnan", "isinf", "isneginf", "isposinf", "logical_not", "signbit", "all", "any"),
    **_unary("argmax", "argmin", "count_nonzero"),
    **{
        name: lambda x, y, name=name: [getattr(aten, name)(z, dim) for z in (x, x * 0) for dim in range(4)]
        for name in ("max", "min", "median", "nanmedian")
    },
    **_integers("bitwise_and", "bitwise_or", "bitwise_xor"),
    **_shifts("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__"),
    "__ilshift__": lambda x, y: _whole(x).__ilshift__(3),
    "__irshift__": lambda x, y: _whole(x).__irshift__(3),
    "bitwise_not": lambda x, y: aten.bitwise_not(_whole(x)),
    "equal": lambda x, y: torch.tensor(aten.equal(x, y)),
    "allclose": lambda x, y: torch.tensor(aten.allclose(x, y)),
    "_is_all_true": lambda x, y: aten._is_all_true(x > 0),
    "_is_any_true": lambda x, y: aten._is_any_true(x > 0),
    "is_same_size": lambda x, y: torch.tensor(aten.is_same_size(x, y)),
    "is_set_to": lambda x, y: torch.tensor(aten.is_set_to(x, y)),
    "_has_same_storage_numel": lambda x, y: torch.tensor(aten._has_same_storage_numel(x, y)),
    "isin": lambda x, y: aten.isin(_whole(x), _whole(y)),
    "sort": lambda x, y: (aten.sort(x, -1), aten.sort(x * 0, 1)),
    "topk": lambda x, y: (aten.topk(x, 2, 1)[0], aten.topk(x * 0, 2, 1)[0]),
    "kthvalue": lambda x, y: (aten.kthvalue(x, 2, 1)[0], aten.kthvalue(x * 0, 2, 1)[0]),
    "mode": lambda x, y: aten.mode(_whole(x), 3)[0],
    "cummax": lambda x, y: (aten.cummax(x, 1), aten.cummax(x * 0, 1)),
    "cummin": lambda x, y: (aten.cummin(x, 1), aten.cummin(x * 0, 1)),
    "_cummax_helper": lambda x, y: aten.cummax(x, 3),
    "_cummin_helper": lambda x, y: aten.cummin(x, 3),
    "nonzero": lambda x, y: aten.nonzero(x > 0),
    "nonzero_static": lambda x, y: aten.nonzero_static(x > 0, size=7),
    "searchsorted": lambda x, y: aten.searchsorted(_sorted(x), y.contiguous()),
    "bucketize": lambda x, y: aten.bucketize(y, _sorted(x)),
    "unique_consecutive": lambda x, y: aten.unique_consecutive(_whole(x)),
    "unique_dim": lambda x, y: aten.unique_dim(_whole(x), 1),
    "_unique": lambda x, y: aten._unique(_whole(x)),
    "_unique2": lambda x, y: aten._unique2(_whole(x)),
    "bincount": lambda x, y: aten.bincount(_index(x, 9).reshape(-1)),
    "max_pool2d_with_indices": lambda x, y: _pooled(x, 2)[:2] + _pooled(x * 0, 2)[:2],
    "max_pool2d_with_indices_backward": lambda x, y: _pooled(x, 2)[2],
    "max_pool3d_with_indices": lambda x, y: _pooled(x, 3)[:2] + _pooled(x * 0, 3)[:2],
    "max_pool3d_with_indices_backward": lambda x, y: _pooled(x, 3)[2],
    **{f"avg_pool{axes}d": lambda x, y, axes=axes: _averaged(x, axes)[0] for axes in (1, 3)},
    **{f"avg_pool{axes}d_backward": lambda x, y, axes=axes: _averaged(x, axes)[1] for axes in (2, 3)},
    "adaptive_max_pool2d": lambda x, y: _largest(x, 2)[:2] + _largest(x * 0, 2)[:2],
    "adaptive_max_pool2d_backward": lambda x, y: _largest(x, 2)[2],
    "adaptive_max_pool3d": lambda x, y: _largest(x, 3)[:2] + _largest(x * 0, 3)[:2],
    "adaptive_max_pool3d_backward": lambda x, y: _largest(x, 3)[2],
}

MOVES: dict[str, Call] = {
    **_unary("alias", "clone", "detach", "ones_like", "zeros_like", "unbind", "squeeze"),
    "_conj": lambda x, y: torch.view_as_real(torch.complex(x.float(), y.float()).conj().resolve_conj()),
    "_conj_physical": lambda x, y: torch.view_as_real(aten._conj_physical(torch.complex(x.float(), y.float()))),
    "_lazy_clone": lambda x, y: aten._lazy_clone(x.clone()),
    **_unary("conj_physical", "_neg_view", "lift", "lift_fresh", "_to_copy"),
    "_copy_from": lambda x, y: torch.empty_like(x).copy_(y),
    "_efficientzerotensor": lambda x, y: torch._efficientzerotensor((2, 3)).clone() + 0,
    "_local_scalar_dense": lambda x, y: torch.tensor(x[0, 0, 0, 0].item()),
    "_new_zeros_with_same_feature_meta": aten._new_zeros_with_same_feature_meta,
    "_pin_memory": lambda x, y: x.clone(),  # pins only with a GPU
    "is_pinned": lambda x, y: torch.tensor(0),
    "_reshape_alias": lambda x, y: aten._reshape_alias(x, x.shape, x.stride()),
    "_reshape_copy": lambda x, y: aten._reshape_copy(x, [-1]),
    "_resize_output": lambda x, y: x.clone(),
    "_stack": lambda x, y: aten._stack([x, y], 1),
    "stack": lambda x, y: aten.stack([x, y], 1),
    "_unsafe_index": lambda x, y: aten._unsafe_index(x, [None, _rows(y)]),
    "_unsafe_view": lambda x, y: aten._unsafe_view(x.contiguous(), [-1]),
    "_chunk_cat": lambda x, y: aten._chunk_cat([x, y], 1, 2),
    "_fw_primal": lambda x, y: x.clone(),
    "_make_dual": lambda x, y: x.clone(),
    **{
        name: lambda x, y: torch.tensor(0)  # checks a condition and returns nothing
        for name in (
            "_assert_async",
            "_functional_assert_async",
            "_assert_scalar",
            "_functional_assert_scalar",
            "_assert_tensor_metadata",
            "_print",
            "from_file",
            "empty",
            "empty_like",
            "empty_permuted",
            "empty_strided",
            "new_empty",
            "new_empty_strided",
            "resize",
            "resize_as",
            "set",
        )
    },
    "as_strided": lambda x, y: x.contiguous().as_strided((2, 3), (4, 1)),
    "block_diag": lambda x, y: torch.block_diag(x[0, 0], y[0, 0]),
    "cat": lambda x, y: aten.cat([x, y], 1),
    "channel_shuffle": lambda x, y: aten.channel_shuffle(torch.cat([x, y], 1), 2),
    "native_channel_shuffle": lambda x, y: aten.native_channel_shuffle(torch.cat([x, y], 1), 2),
    "complex": lambda x, y: torch.view_as_real(torch.complex(x.float(), y.float())),
    "constant_pad_nd": lambda x, y: aten.constant_pad_nd(x, [1, 2, 0, 1], 0.5),
    "contiguous": lambda x, y: x.contiguous(),
    "copy": aten.copy,
    "copy_": lambda x, y: torch.empty(x.shape, dtype=torch.bfloat16).copy_(y),
    "diagonal": lambda x, y: x.diagonal(0, 2, 3).clone(),
    "diagonal_backward": lambda x, y: aten.diagonal_backward(x[0, 0, 0, :2], [2, 2], 0, 0, 1),
    "embedding": lambda x, y: aten.embedding(x.reshape(-1, x.shape[3]), _index(y, 4)),
    "expand": lambda x, y: x[:1].expand(3, -1, -1, -1).clone(),
    "eye": lambda x, y: torch.eye(5),
    "fill": lambda x, y: aten.fill(x, 0.3),
    "flip": lambda x, y: aten.flip(x, [1, 3]),
    "full": lambda x, y: torch.full(x.shape, 0.3),
    "full_like": lambda x, y: torch.full_like(x, 0.3),
    "gather": lambda x, y: aten.gather(x, 1, _index(y, x.shape[1])),
    "im2col": lambda x, y: F.unfold(x, 2),
    "col2im": lambda x, y: F.fold(F.unfold(x, 2) * 0.37, x.shape[2:], 2),
    "index": lambda x, y: x[:, _rows(y)],
    "index_fill": lambda x, y: aten.index_fill(x, 1, _rows(y), 0.3),
    "index_select": lambda x, y: aten.index_select(x, 1, _rows(y)),
    "masked_fill": lambda x, y: aten.masked_fill(x, y > 0, 0.3),
    "masked_scatter": lambda x, y: aten.masked_scatter(x, y > 0, y),
    "masked_select": lambda x, y: aten.masked_select(x, y > 0),
    "narrow_copy": lambda x, y: aten.narrow_copy(x, 1, 1, 1),
    "new_full": lambda x, y: x.new_full((3, 4), 0.3),
    "new_ones": lambda x, y: x.new_ones((3, 4)),
    "new_zeros": lambda x, y: x.new_zeros((3, 4)),
    "ones": lambda x, y: torch.ones(3, 4),
    "zeros": lambda x, y: torch.zeros(3, 4),
    "zero": lambda x, y: aten.zero(x),
    "permute": lambda x, y: x.permute(3, 1, 0, 2).contiguous(),
    "pixel_shuffle": lambda x, y: F.pixel_shuffle(torch.cat([x, y, x, y], 1)[:, : 4 * x.shape[1]], 2),
    "pixel_unshuffle": lambda x, y: F.pixel_unshuffle(F.pad(x, (0, 1, 0, 1)), 2),
    "repeat": lambda x, y: x.repeat(2, 1, 1, 3),
    "repeat_interleave": lambda x, y: x.repeat_interleave(2, 1),
    "roll": lambda x, y: aten.roll(x, [1, 2], [1, 3]),
    "rot90": lambda x, y: aten.rot90(x, 1, [2, 3]),
    "scalar_tensor": lambda x, y: torch.scalar_tensor(0.3),
    "scatter": lambda x, y: aten.scatter(x, 1, torch.arange(x.shape[1]).flip(0).reshape(1, -1, 1, 1).expand_as(x), y),
    "select": lambda x, y: x.select(1, 1).clone(),
    "select_backward": lambda x, y: aten.select_backward(x.select(1, 1), x.shape, 1, 1),
    "slice": lambda x, y: x[:, :, 1:, ::2].clone(),
    "slice_backward": lambda x, y: aten.slice_backward(x[:, :, 1:], x.shape, 2, 1, x.shape[2], 1),
    "slice_inverse": lambda x, y: x.clone(),
    "split": lambda x, y: x.split(1, 1),
    "split_with_sizes": lambda x, y: aten.split_with_sizes(x, [1, x.shape[1] - 1], 1),
    "t": lambda x, y: x[0, 0].t().contiguous(),
    "take": lambda x, y: aten.take(x, torch.tensor([3, 7])),
    "transpose": lambda x, y: x.transpose(1, 3).contiguous(),
    **_unary("tril", "triu"),
    "tril_indices": lambda x, y: torch.tril_indices(5, 4),
    "triu_indices": lambda x, y: torch.triu_indices(5, 4),
    "unfold": lambda x, y: x.unfold(3, 2, 1).clone(),
    "unsafe_split": lambda x, y: aten.unsafe_split(x, 1, 1),
    "unsafe_split_with_sizes": lambda x, y: aten.unsafe_split_with_sizes(x, [1, x.shape[1] - 1], 1),
    "unsqueeze": lambda x, y: x.unsqueeze(1),
    "view": lambda x, y: x.contiguous().view(-1),
    "view_copy": lambda x, y: aten.view_copy(x.contiguous(), [-1]),
    "view_as_complex": lambda x, y: torch.view_as_real(torch.view_as_complex(torch.stack([x, y], -1).float())),
    "view_as_real": lambda x, y: torch.view_as_real(torch.complex(x.float(), y.float())),
    "where": lambda x, y: aten.where(x > 0, x, y),
    **{
        f"{kind}_pad{axes}d": lambda x, y, mode=mode, axes=axes: F.pad(_of_rank(x, axes), (1,) * 2 * axes, mode)
        for kind, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for axes in (1, 2, 3)
    },
    **{
        f"{kind}_pad{axes}d_backward": lambda x, y, mode=mode, axes=axes: _padded_back(x, axes, mode)
        for kind, mode in (("reflection", "reflect"), ("replication", "replicate"))
        for axes in (1, 2, 3)
    },
    **{
        f"{'_' * bool(exact)}upsample_nearest{exact}{axes}d_backward": lambda x, y, mode=mode, axes=axes: (
            _enlarged_back(x, axes, mode)
        )
        for exact, mode in (("", "nearest"), ("_exact", "nearest-exact"))
        for axes in (1, 2, 3)
    },
    **{
        f"{'_' * bool(exact)}upsample_nearest{exact}{axes}d": lambda x, y, mode=mode, axes=axes: F.interpolate(
            _of_rank(x, axes), scale_factor=1.7, mode=mode
        )
        for exact, mode in (("", "nearest"), ("_exact", "nearest-exact"))
        for axes in (1, 2, 3)
    },
}
INTEGERS: dict[str, Call] = {
    **_integers("gcd", "lcm"),
    "randint": lambda x, y: torch.randint(0, 100, x.shape),
    "randperm": lambda x, y: torch.randperm(x.numel()),
}
CASES = ARITHMETIC | COMPARISONS | MOVES | INTEGERS


def _of_rank(x: torch.Tensor, axes: int) -> torch.Tensor:
    return x.flatten(2) if axes == 1 else x if axes == 2 else torch.stack([x, x * 0.5, x * 0.25], 2)


def operands(shape: tuple[int, ...], dtype: torch.dtype, last: bool) -> list[torch.Tensor]:
    """Return two tensors with negative and equal values, and zeros of both signs."""
    rng = np.random.default_rng(0)
    both = [np.round(rng.standard_normal(shape), 2).astype(np.float32) * np.float32(1.1) for _ in range(2)]
    both[1][both[1] == 0] = 0.25  # divisors
    memory = torch.channels_last if last else torch.contiguous_format
    return [torch.from_numpy(one).to(dtype).contiguous(memory_format=memory) for one in both]
