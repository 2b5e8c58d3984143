"""Thirty right kernels for ``gates.py``: orders of f32 sums, libraries, transforms, and declared arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from convgrad.formats import BF16, F32, TF32, round_to
from convgrad.verify.winograd import matrices
from tests.verify.planted_loops import bits_kept
from tests.verify.plants import Array, Plant
from tests.verify.verdict_orders import chains, columns_of, finished, nearest, orders

Computed = Callable[[Plant], Array | None]
ORDERS = (
    "chain", "chain, products rounded", "chain reversed", "chain shuffled", "4 lanes", "8 lanes", "16 lanes",
    "32 lanes", "blocks of 256, 16-ary", "blocks of 192, chained", "blocks of 32, shuffled", "split in 2", "split in 3",
    "split in 8", "split in 64", "pairwise", "pairwise from 8", "compensated", "f64",
)  # fmt: skip


def in_order(p: Plant, name: str) -> Array:
    """Return f32 sums in an order."""
    prepared = p.prepared()
    columns = columns_of(prepared.problem, prepared.operands)
    summed = orders(columns, np.random.default_rng(1))[name]()
    return finished(columns, summed, F32).reshape(_shape(p))


def _shape(p: Plant) -> tuple[int, ...]:
    return {"weights": p.w, "dst": p.y, "src": p.x}[p.role].shape


def in_bits(p: Plant, bits: int) -> Array | None:
    """Return one chain whose sums are kept in few bits, of a layer with at most 500 terms."""
    prepared = p.prepared()
    columns = columns_of(prepared.problem, prepared.operands)
    if columns.terms > 500:
        return None
    return chains(columns.x, columns.y, 1, partial(bits_kept, bits=bits))[0].reshape(_shape(p))


def of_torch(p: Plant, channels_last: bool = False) -> Array:
    """Return PyTorch's result, on src padded beforehand, because its pads are the same at both ends."""
    import torch  # noqa: PLC0415

    (bh, bw), (eh, ew) = p.begin, p.end
    layout = torch.channels_last if channels_last else torch.contiguous_format
    reach = [
        s * (o - 1) + d * (k - 1) + 1 for s, o, d, k in zip(p.stride, p.y.shape[2:], p.dilation, p.kernel, strict=True)
    ]
    x = np.pad(p.x, ((0, 0), (0, 0), (bh, max(eh, 0)), (bw, max(ew, 0))))
    missing = [max(0, r - size) for r, size in zip(reach, x.shape[2:], strict=True)]
    x = np.pad(x, ((0, 0), (0, 0), (0, missing[0]), (0, missing[1])))[:, :, : reach[0], : reach[1]]
    x, y, w = (torch.from_numpy(np.ascontiguousarray(a)).contiguous(memory_format=layout) for a in (x, p.y, p.w))
    tail = (list(p.stride), [0, 0], list(p.dilation), False, [0, 0], p.groups)
    if p.role == "dst":
        return torch.ops.aten.convolution(x, w, None, *tail).numpy()
    mask = [p.role == "src", p.role == "weights", False]
    found = torch.ops.aten.convolution_backward(y, x, w, None, *tail, mask)
    if p.role == "weights":
        return found[1].numpy()
    whole = np.zeros((*p.x.shape[:2], bh + p.x.shape[2] + reach[0], bw + p.x.shape[3] + reach[1]), np.float32)
    whole[:, :, : reach[0], : reach[1]] = found[0].numpy()
    return whole[:, :, bh : bh + p.x.shape[2], bw : bw + p.x.shape[3]]


def of_jax(p: Plant) -> Array:
    """Return JAX's result, by the derivative of its forward pass."""
    import jax  # noqa: PLC0415

    pads = []
    for at in range(2):
        reach = p.stride[at] * (p.y.shape[2 + at] - 1) + p.dilation[at] * (p.kernel[at] - 1) + 1
        pads.append((p.begin[at], reach - p.begin[at] - p.x.shape[2 + at]))

    def forward(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, p.stride, pads, rhs_dilation=p.dilation, feature_group_count=p.groups)

    result, pullback = jax.vjp(forward, p.x, p.w)
    return np.asarray(result if p.role == "dst" else pullback(p.y.astype(np.float32))[int(p.role == "weights")])


def by_taps(p: Plant) -> Array | None:
    """Return f32 matrix products of NumPy, added tap by tap, of a plain forward pass or weight gradient."""
    if not _plain(p) or p.role == "src":
        return None
    x, (height, width) = np.pad(p.x, ((0, 0), (0, 0), *((b, b) for b in p.begin))), p.y.shape[2:]
    result = np.zeros(_shape(p), np.float32)
    for h, v in np.ndindex(*p.kernel):
        window = x[:, :, h : h + height, v : v + width]
        if p.role == "weights":
            result[:, :, h, v] = np.tensordot(p.y, window, ((0, 2, 3), (0, 2, 3)))
        else:
            result += np.moveaxis(np.tensordot(window, p.w[:, :, h, v], (1, 1)), 3, 1)
    return result


def _plain(p: Plant) -> bool:
    return (p.stride, p.dilation, p.groups) == ((1, 1), (1, 1), 1)


def winograd(p: Plant, outputs: int) -> Array | None:
    """Return a forward pass by tiles in f32."""
    if p.role != "dst" or not _plain(p) or p.kernel != (3, 3):
        return None
    a, g, b = (np.array([[float(v) for v in row] for row in m], np.float32) for m in matrices(outputs, 3))
    (n, o, height, width), size = p.y.shape, outputs + 2
    tiles = [-(-extent // outputs) for extent in (height, width)]
    ends = [
        count * outputs + 2 - extent - begin for count, extent, begin in zip(tiles, p.x.shape[2:], p.begin, strict=True)
    ]
    x = np.pad(p.x, ((0, 0), (0, 0), (p.begin[0], ends[0]), (p.begin[1], ends[1])))
    filters = np.einsum("ik,ockl,jl->ocij", g, p.w, g, dtype=np.float32)
    result = np.zeros((n, o, tiles[0] * outputs, tiles[1] * outputs), np.float32)
    for row, column in np.ndindex(*tiles):
        top, left = row * outputs, column * outputs
        data = np.einsum("ik,nckl,jl->ncij", b, x[:, :, top : top + size, left : left + size], b, dtype=np.float32)
        products = np.einsum("ocij,ncij->noij", filters, data, dtype=np.float32)
        tile = np.einsum("ik,noij,jl->nokl", a, products, a, dtype=np.float32)
        result[:, :, top : top + outputs, left : left + outputs] = tile
    return result[:, :, :height, :width]


def fft(p: Plant, dtype: Any) -> Array | None:
    """Return a forward pass by FFT of a type."""
    if p.role != "dst" or not _plain(p):
        return None
    x = np.pad(p.x, ((0, 0), (0, 0), *((b, b) for b in p.begin))).astype(dtype)
    extents = x.shape[2:]
    data = np.fft.rfft2(x)
    filters = np.fft.rfft2(np.flip(p.w, (2, 3)).astype(dtype), extents)
    full = np.fft.irfft2(np.einsum("nchw,ochw->nohw", data, filters), extents)
    height, width = p.y.shape[2:]
    return full[:, :, p.kernel[0] - 1 :, p.kernel[1] - 1 :][:, :, :height, :width]


def in_tf32(p: Plant) -> Array:
    """Return f32 sums of operands rounded to tf32."""
    operands = {n: round_to(getattr(p, n), TF32).astype(np.float32) for n in "xyw"}
    return in_order(Plant(**{**vars(p), **operands}), "chain")


KERNELS: Mapping[str, tuple[Computed, Mapping[str, Any]]] = {
    **{name: (partial(in_order, name=name), {}) for name in ORDERS},
    "convgrad": (lambda p: p.right(), {}),
    "PyTorch": (of_torch, {}),
    "JAX": (of_jax, {}),
    "NumPy, tap by tap": (by_taps, {}),
    "Winograd F(2,3)": (partial(winograd, outputs=2), {"algorithm": "winograd:2,3"}),
    "Winograd F(4,3)": (partial(winograd, outputs=4), {"algorithm": "winograd:4,3"}),
    "FFT in f32": (partial(fft, dtype=np.float32), {"algorithm": "fft"}),
    "FFT in f64": (partial(fft, dtype=np.float64), {"algorithm": "fft"}),
    "sums in bf16": (partial(in_bits, bits=8), {"accumulation": "bf16"}),
    "operands in tf32": (in_tf32, {"operands": "tf32"}),
    "result in bf16": (lambda p: nearest(p.sums()), {"result": BF16}),
}
