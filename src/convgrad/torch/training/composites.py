"""Operators that are made of other operators of the table, whose gradients PyTorch records."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from convgrad.torch.training.row import (
    ELEMENTWISE,
    LOW,
    NO_SUM,
    OF_OPERATOR,
    SECTIONS,
    SEQUENTIAL,
    SERVE,
    UnservedError,
    common_type,
    composite,
    result_type,
    row,
)

SUM, MEAN = 0, 1  # modes of an embedding bag
OF_PARTS = "that of each operation"


@composite(
    "logit", formula="log(x) - log1p(-x), x clamped to [eps, 1 - eps]", order=NO_SUM, bound=OF_PARTS, integers=SERVE
)
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """Return the logarithm of the odds, in f32 for 16 bits; the gradient 1 / x + 1 / (1 - x) is infinite at 0 and 1."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    chance = x.float() if dtype in LOW else x.to(dtype)
    if eps is not None and eps >= 0:
        chance = chance.clamp(eps, 1 - eps)
    return (torch.log(chance) - torch.log1p(-chance)).to(dtype)


@composite("deg2rad", formula="x * (pi / 180)", order=NO_SUM, bound="1 ulp", types=ELEMENTWISE, integers=SERVE)
def radians(x: Tensor) -> Tensor:
    """Return angles in radians."""
    return x * (math.pi / 180)


@composite("rad2deg", formula="x * (180 / pi)", order=NO_SUM, bound="1 ulp", types=ELEMENTWISE, integers=SERVE)
def degrees(x: Tensor) -> Tensor:
    """Return angles in degrees."""
    return x * (180 / math.pi)


@composite("hypot", formula="sqrt(x^2 + y^2) in f64", order=NO_SUM, bound="0.501 ulp")
def hypot(x: Tensor, y: Tensor) -> Tensor:
    """Return the length of the hypotenuse. Squares of f32 neither overflow in f64 nor become denormal."""
    dtype, (x, y) = result_type(x, y), torch.broadcast_tensors(x, y)
    return (x.double().square() + y.double().square()).sqrt().to(dtype)


@composite("linalg_cross", formula="a[1] b[2] - a[2] b[1], and so on", order=NO_SUM, bound=OF_PARTS, types=ELEMENTWISE)
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Tensor:
    """Return the cross product of vectors along an axis."""
    if a.dim() != b.dim() or a.dtype != b.dtype or not a.size(dim) == b.size(dim) == 3:
        kinds = [(tuple(x.shape), x.dtype) for x in (a, b)]
        raise RuntimeError(f"linalg.cross: inputs must have one type, and 3 elements along dim {dim}; got {kinds}")
    following, previous = (torch.tensor(places) for places in ((1, 2, 0), (2, 0, 1)))
    first = a.index_select(dim, following) * b.index_select(dim, previous)
    return first - a.index_select(dim, previous) * b.index_select(dim, following)


@composite("renorm", formula="x * (maxnorm / (norm + 1e-7)) where norm > maxnorm", order=OF_OPERATOR, bound=OF_PARTS)
def renorm(x: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Return slices whose norms are at most ``maxnorm``."""
    if not (p > 0 and maxnorm >= 0 and x.dim() > 1):
        raise RuntimeError(
            f"renorm: p must be positive, maxnorm at least 0, and x have 2 axes; got {p}, {maxnorm}, {x.shape}"
        )
    others = [axis for axis in range(x.dim()) if axis not in (dim, dim + x.dim())]
    x.size(dim)  # raises if there is no such axis
    wide = x.float() if x.dtype in LOW else x  # norms may exceed f16
    norms = torch.linalg.vector_norm(wide, p, others, keepdim=True)
    return (wide * torch.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)).to(x.dtype)


@composite("addr", formula="beta * x + alpha * (a b^T)", order=NO_SUM, bound=OF_PARTS, types=ELEMENTWISE)
def plus_outer(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return a matrix plus an outer product, rounded to 16 bits once."""
    if a.dim() != 1 or b.dim() != 1:
        raise RuntimeError(f"addr: expected two vectors; got {a.shape}, {b.shape}")
    dtype, (x, a, b) = common_type(x, a, b)
    added, outer = x.expand(len(a), len(b)), alpha * (a.unsqueeze(1) * b)
    return (outer if beta == 0 else beta * added + outer).to(dtype)


@composite("addbmm", formula="addmm of the matrices side by side", order=OF_OPERATOR, bound="that of addmm")
def plus_products(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Return a matrix plus the sum of the products of two batches of matrices."""
    if not a.dim() == b.dim() == 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(f"addbmm: batches of matrices do not match; got {a.shape}, {b.shape}")
    return torch.addmm(x, a.transpose(0, 1).flatten(1), b.flatten(0, 1), beta=beta, alpha=alpha)


@composite("_cdist_forward", formula="norm(a - b) of each pair of rows", order=OF_OPERATOR, bound=OF_PARTS)
def distances(a: Tensor, b: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """Return the distances of all rows of ``a`` from all rows of ``b``."""
    if not p >= 0:
        raise RuntimeError(f"cdist: p must be at least 0; got {p}")
    return _norms(a.unsqueeze(-2) - b.unsqueeze(-3), p)


@composite("_pdist_forward", formula="norm(x[i] - x[j]) for i < j", order=OF_OPERATOR, bound=OF_PARTS)
def distances_within(x: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances of the rows of a matrix from each other."""
    i, j = torch.triu_indices(len(x), len(x), 1)
    return _norms(x[i] - x[j], p)


def _norms(differences: Tensor, p: float) -> Tensor:
    """Return the norms of the last axis; those of empty vectors are 0, also the largest one."""
    return torch.linalg.vector_norm(differences, p if differences.shape[-1] else 2.0, -1)


@composite(
    "rrelu_with_noise",
    formula="x * noise, noise uniform where x <= 0, else 1",
    order=NO_SUM,
    bound="0.5 ulp",
    types=ELEMENTWISE,
)
def rrelu(
    x: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return a leaky ReLU with random slopes, or with their mean if it does not train."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
    with torch.no_grad():
        noise.uniform_(lower, upper, generator=generator)
        noise.masked_fill_(x > 0, 1)
    return x * noise


@composite(
    "_embedding_bag",
    "_embedding_bag_forward_only",
    formula="sums of the rows of a bag, / count for means",
    order=SEQUENTIAL,
    bound=OF_PARTS,
)
def bags_of_rows(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the sums or means of bags of rows, and the bag of each index, the sizes of the bags, and nothing."""
    if mode not in (SUM, MEAN) or sparse:
        raise UnservedError("computes only sums and means with dense gradients", "Use mode='sum' and sparse=False")
    bounds = offsets if include_last_offset else torch.cat([offsets, offsets.new_tensor([len(indices)])])
    sizes = bounds.diff()
    if (len(offsets) and offsets[0] != 0) or (sizes < 0).any() or sizes.sum() != len(indices):
        raise RuntimeError("embedding_bag: offsets must begin with 0, ascend, and not exceed the number of indices")
    if per_sample_weights is not None and per_sample_weights.shape != indices.shape:
        raise RuntimeError(f"embedding_bag: each index needs a weight; got {per_sample_weights.shape} weights")
    bags = torch.repeat_interleave(torch.arange(len(sizes)), sizes.long())
    used, of_bags = indices, bags
    if padding_idx >= 0:
        kept = indices != padding_idx
        used, of_bags = indices[kept], bags[kept]
        per_sample_weights = None if per_sample_weights is None else per_sample_weights[kept]
    rows = torch.embedding(weight, used, -1, scale_grad_by_freq)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    sums = weight.new_zeros(len(sizes), weight.shape[1]).index_add(0, of_bags, rows)
    counts = torch.bincount(of_bags, minlength=len(sizes))
    if mode == MEAN:
        sums = sums / counts.clamp(min=1).unsqueeze(1).to(sums.dtype)
    return sums, bags, counts, counts.new_empty(0)


@row("linalg_qr", formula="Householder's reflections, column by column", order=SECTIONS, bound="no bound is proved")
def qr(matrix: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Return an orthogonal and a triangular factor, with the signs of LAPACK's."""
    if mode not in ("reduced", "complete", "r") or matrix.dim() < 2 or matrix.dtype != torch.float32:
        raise RuntimeError(
            f"linalg.qr: needs matrices of f32, and a mode; got {matrix.dtype}, {matrix.shape}, {mode!r}"
        )
    rows, columns = matrix.shape[-2:]
    largest = matrix.abs().amax((-2, -1), keepdim=True) if matrix.numel() else matrix.new_zeros(())
    exponent = torch.frexp(largest).exponent.clamp(-100, 100)  # so that squares neither overflow nor vanish
    triangle, reflections = torch.ldexp(matrix, -exponent).contiguous(), []
    for column in range(min(rows - 1, columns)):
        below = triangle[..., column].clone()
        below[..., :column] = 0  # all vectors have one length, so that all products have one plan
        norm = torch.linalg.vector_norm(below, 2, -1)
        below[..., column] += torch.where(below[..., column] < 0, -norm, norm)
        half = (below * below).sum(-1) / 2
        reflections.append((below, torch.where(half > 0, 1 / half, 0.0)))
        _reflect(triangle, *reflections[-1])
    size = rows if mode == "complete" else min(rows, columns)
    triangle = torch.ldexp(triangle[..., :size, :].triu(), exponent).mT.contiguous().mT
    if mode == "r":
        return matrix.new_empty(0), triangle
    orthogonal = torch.eye(rows, size).expand(*matrix.shape[:-2], rows, size).clone()
    for reflection in reversed(reflections):
        _reflect(orthogonal, *reflection)
    return orthogonal.mT.contiguous().mT, triangle


def _reflect(matrix: Tensor, vector: Tensor, factor: Tensor) -> None:
    """Subtract from each column its projection on a vector, twice, in place; ``factor`` is 2 / (length of vector)^2."""
    scaled = (vector * factor.unsqueeze(-1)).unsqueeze(-1)
    matrix -= scaled * torch.matmul(vector.unsqueeze(-2), matrix)
