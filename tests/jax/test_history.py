"""What a call answers does not depend on earlier calls: values that are equal are not the same to the checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import convgrad.jax as cj  # noqa: E402
from tests.support.alike import differences  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402

SRC, WEIGHTS = jax.numpy.ones((2, 6, 6, 4)), jax.numpy.ones((3, 3, 4, 4))
SAME: dict[str, Sequence[Any]] = {
    "strides": [1, (1, 1)], "pads_begin": [1, (1, 1)], "pads_end": [1], "dilations": [1], "groups": [1],
    "auto_pad": ["none"], "data_format": ["NXC"], "dtype": ["f32"], "threads": [1, 2], "max_error": [1.0, 64.0],
}  # fmt: skip
RUN = {name: values[-1:] if name in ("strides", "pads_begin") else values for name, values in SAME.items()}
LAX: dict[str, Sequence[Any]] = {
    "window_strides": [(1, 1)], "padding": [[(1, 1), (1, 1)]], "lhs_dilation": [(1, 1)], "rhs_dilation": [(1, 1)],
    "feature_group_count": [1], "batch_group_count": [1],
}  # fmt: skip
LISTS = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1]}
SMALL = jax.numpy.ones((1, 3, 4)), jax.numpy.ones((1, 4, 4))
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Sequence[Any]]]] = {
    "threads": (partial(cj.convolution, *SMALL), {"threads": [1], "groups": [1]}),
    "convolution": (partial(cj.convolution, SRC, WEIGHTS, pads_begin=1, pads_end=1), SAME),
    "weights": (partial(cj.convolution_backward_weights, SRC, SRC, WEIGHTS.shape, pads_begin=1, pads_end=1), SAME),
    "run": (partial(cj.run, "Convolution", SRC, WEIGHTS, **LISTS), {n: v for n, v in RUN.items() if n != "pads_end"}),
    "lax": (
        partial(
            cj.conv_general_dilated,
            SRC,
            WEIGHTS,
            **{"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")},
        ),
        LAX,
    ),
}


@tiers("name", ["threads"], long=[name for name in CALLS if name != "threads"])
def test_equal_values_of_other_types(name: str) -> None:
    call, options = CALLS[name]
    assert differences(call, options) == []
