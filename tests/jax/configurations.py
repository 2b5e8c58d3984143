"""Random calls of jax.lax.conv_general_dilated: all arguments and orders of axes, sizes of 0, wrong arguments."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

SPATIAL = "DHW"
KINDS = ["float32"] * 6 + ["bfloat16", "float16", "complex64", "complex64", "int8", "int32", "uint8", "bool"]
PREFERRED = {"bfloat16": ["float32"], "int8": ["int32", "float32"], "bool": ["int32"], "float16": ["float32"]}
WRONG: list[dict[str, Any]] = [  # arguments of the wrong kind or length; no case has five spatial axes
    {"padding": 1},
    {"padding": (1, 1)},
    {"padding": None},
    {"padding": [(1, 1)] * 5},
    {"padding": [(1, 1, 1)]},
    {"padding": [(0.5, 1)]},
    {"padding": "FULL"},
    {"window_strides": 2},
    {"window_strides": (1,) * 5},
    {"window_strides": (0,)},
    {"window_strides": (1.0,)},
    {"window_strides": None},
    {"lhs_dilation": (1,) * 5},
    {"lhs_dilation": 2},
    {"rhs_dilation": (2,) * 5},
    {"rhs_dilation": (-1,)},
    {"rhs_dilation": "2"},
    {"dimension_numbers": ("NHC", "HIO", "NWC")},
    {"dimension_numbers": ("NC",)},
    {"dimension_numbers": 3},
    {"feature_group_count": 0},
    {"feature_group_count": 5},
    {"feature_group_count": 1.0},
    {"batch_group_count": 0},
    {"batch_group_count": 7},
    {"preferred_element_type": "float3"},
    {"preferred_element_type": object()},
    {"rhs": np.ones((2,) * 7, np.float32)},
    {"rhs": np.float32(1)},
    {"lhs": np.ones((3, 3), np.float16)},
]
Call = tuple[Any, Any, dict[str, Any]]


def values(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> Any:
    """Return an array of -1, 0 and 1, or without a sign of 0 and 1."""
    real = rng.integers(-1, 2, shape)
    if kind == "complex64":
        return (real + 1j * rng.integers(-1, 2, shape)).astype(np.complex64)
    return np.asarray(abs(real) if kind in ("uint8", "bool") else real).astype(jnp.dtype(kind))


def drawn(seed: int) -> Call:
    """Return lhs, rhs and the keywords of a call. Values are small integers, so that JAX's sums are exact."""
    rng = np.random.default_rng(seed)
    axes = int(rng.choice([0, 1, 2, 2, 3]))
    several = rng.random() < 0.4
    by_batch = several and rng.random() < 0.4
    groups = int(rng.integers(2, 4)) if several else 1
    batch, inputs, outputs = (_extent(rng, 1, 3) for _ in range(3))
    extents = tuple(_extent(rng, 1, 7) for _ in range(axes))
    kernel = tuple(_extent(rng, 1, 3) for _ in range(axes))
    strides, gaps, dilations = (rng.choice([1, 1, 2, 3], axes).tolist() for _ in range(3))
    keywords: dict[str, Any] = {"window_strides": strides, "padding": rng.integers(-2, 5, (axes, 2)).tolist()}
    specs = [_order(rng, letters, axes) for letters in ("NC", "OI", "NC")]
    if rng.random() < 0.7:
        keywords["dimension_numbers"] = tuple(specs)
    else:
        specs = [letters + SPATIAL[:axes] for letters in ("NC", "OI", "NC")]
    if rng.random() < 0.5:
        keywords["lhs_dilation"] = gaps
    elif rng.random() < 0.4:
        keywords["padding"] = str(rng.choice(["SAME", "same", "SAME_LOWER", "VALID"]))
    if rng.random() < 0.5:
        keywords["rhs_dilation"] = dilations
    if several:
        keywords["batch_group_count" if by_batch else "feature_group_count"] = groups
    if rng.random() < 0.1:
        keywords["precision"] = "highest"
    kind = str(rng.choice(KINDS))
    if kind in PREFERRED and rng.random() < 0.5:
        keywords["preferred_element_type"] = str(rng.choice(PREFERRED[kind]))
    order = "".join(letter for letter in specs[1] if letter in SPATIAL)  # the order of strides, pads and dilations
    sizes = {"N": batch * (groups if by_batch else 1), "C": inputs * (1 if by_batch else groups)}
    lhs = sizes | dict(zip(order, extents, strict=True))
    rhs = {"O": outputs * groups, "I": inputs} | dict(zip(order, kernel, strict=True))
    shapes = (tuple(extent[x] for x in spec) for extent, spec in zip((lhs, rhs), specs, strict=False))
    return *(values(rng, shape, kind) for shape in shapes), keywords


def wrong(seed: int) -> Call:
    """Return a call like those of ``drawn`` that has one wrong argument."""
    lhs, rhs, keywords = drawn(seed)
    changed = WRONG[seed % len(WRONG)]
    keywords |= {name: value for name, value in changed.items() if name not in ("lhs", "rhs")}
    return changed.get("lhs", lhs), changed.get("rhs", rhs), keywords


def _extent(rng: np.random.Generator, least: int, most: int) -> int:
    return 0 if rng.random() < 0.03 else int(rng.integers(least, most + 1))


def _order(rng: np.random.Generator, letters: str, axes: int) -> str:
    return "".join(rng.permutation([*letters, *SPATIAL[:axes]]))
