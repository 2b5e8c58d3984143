"""A call of each operator that `same_bits` computes, on tensors of small integers or of real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Draw = Callable[..., torch.Tensor]  # a shape -> a tensor of the type, format and numbers under test
Call = Callable[[Draw], tuple[Any, ...]]
IMAGES = 3, 4, 6, 8
_OPTIONS = dict[str, Any]


def _labels(shape: tuple[int, ...], classes: int) -> torch.Tensor:
    labels = torch.arange(int(np.prod(shape))).reshape(shape) % classes
    labels.reshape(-1)[0] = -100
    return labels


def _two_or_half(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, 2.0, 0.5).to(x.dtype)


def _adam(d: Draw) -> tuple[Any, ...]:
    lists = [[d(5, 7), d(3)] for _ in range(2)]
    squares = [[abs(one) for one in (d(5, 7), d(3))] for _ in range(2)]
    return (*lists, [d(5, 7), d(3)], *squares, [torch.tensor(3.0), torch.tensor(3.0)])


def _zeros(d: Draw, *shape: int) -> torch.Tensor:
    """Return zeros of both signs."""
    return d(*shape) * 0


def _with_nan(d: Draw) -> torch.Tensor:
    """Return a tensor with NaN in some places, if its type has NaN."""
    x = d(*IMAGES)
    return torch.where(x.abs() < 0.3, math.nan, x) if x.is_floating_point() else x


_FUNCTIONS = "exp exp2 sigmoid tanh sin cos tan sinh cosh asinh atan"
_GRID = 2, 3, 4, 5, 6
_CONV = (2, 1), (1, 0), (1, 1)
_STATS = False, 0.25, 0.5
CASES: dict[str, tuple[Call, _OPTIONS]] = {
    "add.Tensor": (lambda d: (d(*IMAGES), d(4, 1, 1)), {"alpha": 3}),
    "sub.Tensor": (lambda d: (d(*IMAGES), d(*IMAGES)), {"alpha": 3}),
    "rsub.Tensor": (lambda d: (d(*IMAGES), d(*IMAGES)), {"alpha": 3}),
    "lerp.Scalar": (lambda d: (d(*IMAGES), d(*IMAGES), 0.25), {}),
    "lerp.Tensor": (lambda d: (d(*IMAGES), d(*IMAGES), abs(d(*IMAGES)) / 4), {}),
    "addcmul": (lambda d: (d(*IMAGES), d(*IMAGES), d(*IMAGES)), {"value": 0.5}),
    "addcdiv": (lambda d: (d(*IMAGES), d(*IMAGES), _two_or_half(d(*IMAGES))), {"value": 0.5}),
    **{
        name: (lambda d: (_zeros(d, *IMAGES), _zeros(d, *IMAGES)), {})
        for name in ("maximum", "minimum", "fmax", "fmin")
    },
    "avg_pool2d": (lambda d: (_zeros(d, *IMAGES), [2, 2]), {}),
    **{
        f"{name}.Tensor": (lambda d: (_zeros(d, *IMAGES), _zeros(d, *IMAGES)), {})
        for name in ("clamp", "clamp_min", "clamp_max")
    },
    **{name: (lambda d: (_zeros(d, *IMAGES), [0, 2]), {}) for name in ("amax", "amin")},
    "aminmax": (lambda d: (_zeros(d, 3, 16, 64, 64),), {"dim": 1}),
    "_aminmax.dim": (lambda d: (_zeros(d, *IMAGES), 1), {}),
    **{
        name: (lambda d: (_zeros(d, 3, 16, 64, 64),), {}) for name in ("_aminmax", "max", "min", "median", "nanmedian")
    },
    **{
        f"{name}.Tensor": (lambda d: (d(*IMAGES), torch.where(d(4, 6, 8) > 0, 0.3, 1e-40).to(d().dtype)), {})
        for name in ("fmod", "remainder")
    },
    **{f"{name}.Scalar": (lambda d: (d(*IMAGES), 0.3), {}) for name in ("fmod", "remainder")},
    "remainder.Scalar_Tensor": (lambda d: (9.5, _two_or_half(d(*IMAGES))), {}),
    "sqrt": (lambda d: (d(*IMAGES) ** 2,), {}),
    "rsqrt": (lambda d: (_two_or_half(d(*IMAGES)) ** 2,), {}),
    "pow.Tensor_Scalar": (lambda d: (d(*IMAGES), 3), {}),
    "pow.Tensor_Tensor": (lambda d: (abs(d(*IMAGES)), d(*IMAGES)), {}),
    "prod": (lambda d: (d(3, 7),), {}),
    "prod.dim_int": (lambda d: (d(*IMAGES), 1), {}),
    "pow.Scalar": (lambda d: (10000.0, d(*IMAGES)), {}),
    **{
        name: (lambda d: (d(*IMAGES),), {})
        for name in (*_FUNCTIONS.split(), "log_sigmoid_forward")
    },
    **{name: (lambda d: (abs(d(*IMAGES)) + 1,), {}) for name in ("log", "log2", "log10", "acosh")},
    **{name: (lambda d: (d(*IMAGES) / 8,), {}) for name in ("asin", "acos", "atanh")},
    **{name: (lambda d: (d(*IMAGES), d(*IMAGES)), {}) for name in ("atan2", "logaddexp")},
    "linspace.out": (lambda d: (0.5, 900.0, 999), {"out": torch.empty(0)}),
    "logspace.out": (lambda d: (-2.0, 3.0, 999, 7.0), {"out": torch.empty(0)}),
    "nansum": (lambda d: (_with_nan(d), [0, 3]), {}),
    "trace": (lambda d: (d(60, 50),), {}),
    **{name: (lambda d: (d(*IMAGES),), {}) for name in ("erf", "expm1", "silu", "softplus", "mish", "softshrink")},
    "silu_backward": (lambda d: (d(*IMAGES), d(*IMAGES)), {}),
    "mish_backward": (lambda d: (d(*IMAGES), d(*IMAGES)), {}),
    **{f"{name}shrink_backward": (lambda d: (d(*IMAGES), _with_nan(d), 0.5), {}) for name in ("soft", "hard")},
    "hardtanh_backward": (lambda d: (d(*IMAGES), _with_nan(d), -0.5, 0.75), {}),
    "hardswish_backward": (lambda d: (d(*IMAGES), d(*IMAGES)), {}),
    "glu": (lambda d: (d(*IMAGES), 1), {}),
    "glu_backward": (lambda d: (d(3, 2, 6, 8), d(*IMAGES), 1), {}),
    "xlogy.Tensor": (lambda d: (d(*IMAGES), abs(d(*IMAGES))), {}),
    "soft_margin_loss": (lambda d: (d(*IMAGES), d(*IMAGES).sign()), {}),
    "soft_margin_loss_backward": (lambda d: (d(), d(*IMAGES), d(*IMAGES).sign(), 1), {}),
    "gelu": (lambda d: (d(*IMAGES),), {"approximate": "none"}),
    "gelu_backward": (lambda d: (d(*IMAGES), d(*IMAGES)), {"approximate": "tanh"}),
    "elu": (lambda d: (d(*IMAGES), 1.5, 0.75, 0.5), {}),
    "celu": (lambda d: (d(*IMAGES), 1.5), {}),
    "elu_backward": (lambda d: (d(*IMAGES), 1.5, 0.75, 0.5, False, d(*IMAGES)), {}),
    "softplus_backward": (lambda d: (d(*IMAGES), d(*IMAGES), 2.0, 6.0), {}),
    "log1p": (lambda d: (abs(d(*IMAGES)),), {}),
    "sigmoid_backward": (lambda d: (d(*IMAGES), d(*IMAGES)), {}),
    "tanh_backward": (lambda d: (d(*IMAGES), d(*IMAGES)), {}),
    "log_sigmoid_backward": (lambda d: (d(*IMAGES), d(*IMAGES), torch.empty(0)), {}),
    "sum": (lambda d: (d(*IMAGES),), {}),
    "sum.dim_IntList": (lambda d: (d(*IMAGES), [0, 3]), {}),
    "mean": (lambda d: (d(4, 4, 8, 8),), {}),
    "mean.dim": (lambda d: (d(3, 5, 8, 4), [-1, -2], True), {}),
    "var.correction": (lambda d: (d(3, 4, 8, 8), [2, 3]), {"correction": 1}),
    "var_mean.correction": (lambda d: (d(3, 4, 8, 8), [0, 2]), {"correction": 0}),
    "std.correction": (lambda d: (d(3, 4, 8, 8), [1]), {"correction": 1}),
    "linalg_vector_norm": (lambda d: (d(*IMAGES), 1), {}),
    "convolution": (lambda d: (d(*IMAGES), d(8, 2, 3, 2), d(8), *_CONV, False, (0, 0), 2), {}),
    "convolution_backward": (
        lambda d: (d(3, 8, 3, 7), d(*IMAGES), d(8, 2, 3, 2), [8], *_CONV, False, (0, 0), 2, [True] * 3),
        {},
    ),
    "mm": (lambda d: (d(5, 300), d(300, 7)), {}),
    "bmm": (lambda d: (d(3, 5, 9), d(3, 9, 7)), {}),
    "mv": (lambda d: (d(5, 9), d(9)), {}),
    "dot": (lambda d: (d(999), d(999)), {}),
    "vdot": (lambda d: (d(999), d(999)), {}),
    "addmm": (lambda d: (d(7), d(5, 9), d(9, 7)), {"beta": 2, "alpha": 3}),
    "addmv": (lambda d: (d(5), d(5, 9), d(9)), {"beta": 2}),
    "baddbmm": (lambda d: (d(3, 5, 7), d(3, 5, 9), d(3, 9, 7)), {"alpha": 0.5}),
    **{name: (lambda d: (d(*IMAGES).sigmoid(),), {}) for name in ("logit", "deg2rad", "rad2deg")},
    "linalg_qr": (lambda d: (d(2, 7, 5).float(),), {}),
    "hypot": (lambda d: (d(*IMAGES), d(*IMAGES)), {}),
    "linalg_cross": (lambda d: (d(5, 3), d(5, 3)), {}),
    "renorm": (lambda d: (d(*IMAGES), 2, 1, 1.5), {}),
    "addr": (lambda d: (d(5, 7), d(5), d(7)), {"alpha": 2}),
    "addbmm": (lambda d: (d(5, 6), d(3, 5, 7), d(3, 7, 6)), {"beta": 2}),
    "_cdist_forward": (lambda d: (d(2, 5, 8), d(2, 7, 8), 2.0, None), {}),
    "_pdist_forward": (lambda d: (d(5, 8), 2.0), {}),
    "rrelu_with_noise": (lambda d: (d(*IMAGES), d(*IMAGES), 0.125, 0.25, True), {}),
    **{
        name: (lambda d: (d(5, 8), torch.tensor([1, 2, 1, 0]), torch.tensor([0, 3]), False, 1), {})
        for name in ("_embedding_bag", "_embedding_bag_forward_only")
    },
    **{
        name: (
            lambda d, of=kind: (d(6, 2, 5).float().log_softmax(2), torch.ones(2, 2).long(), of([6, 5]), of([2, 1])),
            {},
        )
        for name, kind in (("_ctc_loss", list), ("_ctc_loss.Tensor", torch.tensor))
    },
    **{
        name: (
            lambda d, of=kind: (
                d(2).float(), d(6, 2, 5).float().log_softmax(2), torch.ones(2, 2).long(), of([6, 5]), of([2, 1]),
                d(2).float(), d(2, 6, 5).float(), 0,
            ),
            {},
        )
        for name, kind in (("_ctc_loss_backward", list), ("_ctc_loss_backward.Tensor", torch.tensor))
    },
    "scaled_dot_product_attention": (lambda d: (d(2, 3, 5, 8), d(2, 3, 7, 8), d(2, 3, 7, 8)), {"is_causal": True}),
    "linear": (lambda d: (d(2, 5, 8), d(4, 8), d(4)), {}),
    "tensordot": (lambda d: (d(2, 5, 8), d(5, 2, 8), [0, 1, 2], [1, 0, 2]), {}),
    "mkldnn_rnn_layer": (
        lambda d: (d(5, 3, 4), d(24, 4), d(24, 6), d(24), d(24), d(3, 6), d(3, 6), True, [], 2, 6, 1, *(True,) * 4),
        {},
    ),
    "_native_multi_head_attention": (
        lambda d: (*(d(2, 5, 8) for _ in range(3)), 8, 2, d(24, 8), d(24), d(8, 8), d(8)),
        {},
    ),
    "_transformer_encoder_layer_fwd": (
        lambda d: (
            d(2, 5, 8), 8, 2, d(24, 8), d(24), d(8, 8), d(8), True, False, 1e-5, *(d(8) for _ in range(4)),
            d(16, 8), d(16), d(8, 16), d(8),
        ),
        {},
    ),
    "_nested_tensor_from_mask_left_aligned": (lambda d: (d(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)), {}),
    "_scaled_dot_product_flash_attention_for_cpu": (
        lambda d: (d(*IMAGES), d(3, 2, 5, 8), d(3, 2, 5, 8)),
        {"attn_mask": torch.arange(15.0).reshape(3, 1, 1, 5)},
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": (
        lambda d: (d(*IMAGES), d(*IMAGES), d(3, 2, 6, 8), d(3, 2, 6, 8), d(*IMAGES), d(3, 4, 6), 0.0, True),
        {},
    ),
    "_adaptive_avg_pool2d": (lambda d: (d(3, 4, 8, 4), [4, 2]), {}),
    "_adaptive_avg_pool3d": (lambda d: (d(3, 4, 8, 4, 4), [4, 2, 1]), {}),
    "_adaptive_avg_pool2d_backward": (lambda d: (d(3, 4, 4, 2), d(3, 4, 8, 4)), {}),
    "_adaptive_avg_pool3d_backward": (lambda d: (d(3, 4, 4, 2, 1), d(3, 4, 8, 4, 4)), {}),
    "upsample_linear1d": (lambda d: (d(3, 4, 8), [16], False), {}),
    "upsample_bilinear2d": (lambda d: (d(*IMAGES), [12, 16], False), {}),
    "upsample_trilinear3d": (lambda d: (d(2, 3, 4, 3, 5), [8, 6, 10], False), {}),
    **{
        f"{name}{backward}": (
            lambda d, backward=backward: (
                d(*IMAGES[:2], 12, 5) if backward else d(*IMAGES),
                [12, 5],
                *([list(IMAGES)] * bool(backward)),
                False,
            ),
            {},
        )
        for name in ("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
        for backward in ("", "_backward")
    },
    "upsample_linear1d_backward": (lambda d: (d(3, 4, 16), [16], [3, 4, 8], False), {}),
    "upsample_bilinear2d_backward": (lambda d: (d(3, 4, 12, 16), [12, 16], [3, 4, 6, 8], False), {}),
    "upsample_trilinear3d_backward": (lambda d: (d(2, 3, 8, 6, 10), [8, 6, 10], [2, 3, 4, 3, 5], False), {}),
    **{
        f"grid_sampler_{axes}d": (
            lambda d, axes=axes: (d(*_GRID[: axes + 2]), d(2, *_GRID[1 : axes + 1], axes), 0, 0, False),
            {},
        )
        for axes in (2, 3)
    },
    **{
        f"grid_sampler_{axes}d_backward": (
            lambda d, axes=axes: (
                d(2, 3, *_GRID[1 : axes + 1]), d(*_GRID[: axes + 2]), d(2, *_GRID[1 : axes + 1], axes), 0, 2, True,
                [True] * 2,
            ),
            {},
        )
        for axes in (2, 3)
    },
    "scatter_reduce.two": (
        lambda d: (d(5, 7), 1, torch.arange(80).reshape(4, 20) % 5, d(5, 20), "mean"),
        {"include_self": False},
    ),
    "scatter_add": (lambda d: (d(5, 7), 1, torch.arange(80).reshape(4, 20) % 7, d(5, 20)), {}),
    "index_add": (lambda d: (d(5, 7), 1, torch.arange(20) % 7, d(5, 20)), {"alpha": 2}),
    "embedding_dense_backward": (lambda d: (d(4, 5, 6), torch.arange(20).reshape(4, 5) % 7, 8, 3, False), {}),
    "_log_softmax": (lambda d: (d(*IMAGES), 1, False), {}),
    "_softmax": (lambda d: (d(*IMAGES), 1, False), {}),
    "_log_softmax_backward_data": (lambda d: (d(9, 40), d(9, 40), 1, torch.float32), {}),
    "_softmax_backward_data": (lambda d: (d(9, 40), d(9, 40), 1, torch.float32), {}),
    "nll_loss_forward": (lambda d: (d(9, 5), _labels((9,), 5), abs(d(5)), 1, -100), {}),
    "nll_loss2d_forward": (lambda d: (d(*IMAGES), _labels((3, 6, 8), 4), None, 2, -100), {}),
    "nll_loss_backward": (lambda d: (d(), d(9, 5), _labels((9,), 5), abs(d(5)), 1, -100, 1 + d() ** 2), {}),
    "nll_loss2d_backward": (lambda d: (d(), d(*IMAGES), _labels((3, 6, 8), 4), None, 2, -100, d()), {}),
    **{name: (lambda d: (d(4, 4, 8, 8), d(4, 4, 8, 8)), {}) for name in ("mse_loss", "smooth_l1_loss", "huber_loss")},
    "mse_loss_backward": (lambda d: (d(), d(4, 4, 8, 8), d(4, 4, 8, 8), 1), {}),
    "smooth_l1_loss_backward": (lambda d: (d(), d(4, 4, 8, 8), d(4, 4, 8, 8), 1, 2.0), {}),
    "huber_loss_backward": (lambda d: (d(), d(4, 4, 8, 8), d(4, 4, 8, 8), 1, 2.0), {}),
    "binary_cross_entropy": (lambda d: (abs(d(*IMAGES)) / 8, abs(d(*IMAGES)) / 8), {}),
    "binary_cross_entropy_backward": (lambda d: (d(), abs(d(*IMAGES)) / 8, abs(d(*IMAGES)) / 8), {}),
    "binary_cross_entropy_with_logits": (lambda d: (d(*IMAGES), abs(d(*IMAGES)) / 8, None, abs(d(8))), {}),
    "native_layer_norm": (lambda d: (d(*IMAGES), [6, 8], d(6, 8), d(6, 8), 0.5), {}),
    "native_layer_norm_backward": (
        lambda d: (
            d(*IMAGES), d(*IMAGES), [6, 8], d(3, 4, 1, 1).contiguous(), abs(d(3, 4, 1, 1)).contiguous(), d(6, 8),
            d(6, 8), [True] * 3,
        ),
        {},
    ),
    "native_group_norm": (lambda d: (d(*IMAGES), d(4), d(4), 3, 4, 48, 2, 0.5), {}),
    "native_group_norm_backward": (
        lambda d: (d(*IMAGES), d(*IMAGES), d(3, 2), abs(d(3, 2)), d(4), 3, 4, 48, 2, [True] * 3),
        {},
    ),
    "_weight_norm_interface": (lambda d: (d(*IMAGES), abs(d(3, 1, 1, 1)), 0), {}),
    "_weight_norm_interface_backward": (
        lambda d: (d(*IMAGES), d(*IMAGES), d(1, 1, 1, 8), 1 + d(1, 1, 1, 8) ** 2, 3),
        {},
    ),
    "native_batch_norm": (lambda d: (d(*IMAGES), d(4), d(4), d(4), abs(d(4)), *_STATS), {}),
    "_native_batch_norm_legit": (lambda d: (d(*IMAGES), d(4), d(4), d(4), abs(d(4)), True, 0.25, 0.5), {}),
    "_native_batch_norm_legit.no_stats": (lambda d: (d(*IMAGES), d(4), d(4), True, 0.25, 0.5), {}),
    "native_batch_norm_backward": (
        lambda d: (d(*IMAGES), d(*IMAGES), d(4), None, None, d(4), abs(d(4)), True, 0.5, [True] * 3),
        {},
    ),
    "normal.Tensor_Tensor": (lambda d: (d(*IMAGES), abs(d(*IMAGES))), {}),
    "normal.Tensor_float": (lambda d: (d(*IMAGES), 2.0), {}),
    "normal.float_Tensor": (lambda d: (1.0, abs(d(*IMAGES))), {}),
    "random_": (lambda d: (d(*IMAGES),), {}),
    "random_.from": (lambda d: (d(*IMAGES), 3, 90), {}),
    "random_.to": (lambda d: (d(*IMAGES), 90), {}),
    "arange.start_out": (lambda d: (0.5, 900.0, 0.1), {"out": torch.empty(0)}),
    "_index_put_impl_": (
        lambda d: (d(5, 70), [None, torch.arange(40_000) % 67], d(5, 40_000), True),
        {},
    ),
    "uniform_": (lambda d: (d(*IMAGES), -1.0, 2.0), {}),
    "bernoulli_.float": (lambda d: (d(*IMAGES), 0.25), {}),
    "bernoulli_.Tensor": (lambda d: (d(*IMAGES), abs(d(*IMAGES)) / 8), {}),
    "exponential_": (lambda d: (d(*IMAGES), 2.0), {}),
    "normal_": (lambda d: (d(*IMAGES), 1.0, 2.0), {}),
    "gru.input": (
        lambda d: (d(3, 5, 4), d(2, 5, 6), [d(18, 4), d(18, 6)] * 2, False, 1, 0.0, True, True, False),
        {},
    ),
    "_foreach_add_.Scalar": (lambda d: ([d(5, 7), *[d(3) for _ in range(8)]], 2.0), {}),
    "_fused_sgd_": (
        lambda d: ([d(5, 7), d(3)], [d(5, 7), d(3)], [d(5, 7), d(3)]),
        {"weight_decay": 0.25, "momentum": 0.5, "lr": 0.125, "dampening": 0.25, "nesterov": False, "maximize": False,
         "is_first_step": False},
    ),
    **{
        name: (_adam, {"lr": 0.125, "beta1": 0.5, "beta2": 0.25, "weight_decay": 0.25, "eps": 0.5, "amsgrad": True,
                       "maximize": True})
        for name in ("_fused_adam_", "_fused_adamw_")
    },
}  # fmt: skip
COMPOSITES: dict[str, Callable[[Draw], Any]] = {  # operators of PyTorch that only call others
    "hann_window": lambda d: torch.hann_window(1001),
    "hamming_window": lambda d: torch.hamming_window(1001, False),
    "blackman_window": lambda d: torch.blackman_window(1001),
    "affine_grid_generator": lambda d: torch.nn.functional.affine_grid(d(3, 2, 3).float(), [3, 1, 17, 13]),
    "dist": lambda d: torch.dist(d(*IMAGES), d(*IMAGES)),
    "ldexp": lambda d: torch.ldexp(d(*IMAGES), torch.arange(8)),
    "multinomial": lambda d: [torch.multinomial(abs(d(50, 60)).float() + 1, 40, again) for again in (False, True)],
    "xlogy": lambda d: (torch.xlogy(d(*IMAGES), 3.0), torch.xlogy(3.0, abs(d(*IMAGES)))),
}
# Their results are exact on small integers, so PyTorch's results in f64 have the same values.
_EXACT = """
    add.Tensor sub.Tensor rsub.Tensor lerp.Scalar lerp.Tensor addcmul addcdiv sqrt rsqrt pow.Tensor_Scalar
    sigmoid_backward tanh_backward sum sum.dim_IntList mean mean.dim linalg_vector_norm convolution
    convolution_backward mm bmm mv dot vdot addmm addmv baddbmm _adaptive_avg_pool2d _adaptive_avg_pool3d
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_linear1d_backward upsample_bilinear2d_backward upsample_trilinear3d_backward
    index_add scatter_add embedding_dense_backward mse_loss smooth_l1_loss huber_loss mse_loss_backward
    smooth_l1_loss_backward huber_loss_backward nll_loss2d_forward nll_loss2d_backward
"""
EXACT = frozenset(_EXACT.split())


def drawing(dtype: torch.dtype, last: bool, seed: int = 0, integers: bool = True) -> Draw:
    """Return a function that draws tensors: integers from -4 to 4, or normal numbers.

    With ``last``, images have channels last, and the first axis of other tensors is contiguous.
    """
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> torch.Tensor:
        values = rng.integers(-4, 5, shape) if integers else rng.standard_normal(shape)
        tensor = torch.from_numpy(np.asarray(values, np.float64)).to(dtype)
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        if not last or tensor.dim() < 2:
            return tensor
        if tensor.dim() in formats:
            return tensor.contiguous(memory_format=formats[tensor.dim()])
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)

    return draw


def operator(name: str) -> Any:
    """Return an operator of ATen by its name, such as "add.Tensor"."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def results(name: str, draw: Draw) -> Any:
    """Call an operator, and return its results and the lists that it wrote to."""
    make, options = CASES[name]
    torch.manual_seed(0)
    arguments = make(draw)
    found = operator(name)(*arguments, **options)
    return arguments if found is None else (found, arguments) if name.endswith("_legit") else found
