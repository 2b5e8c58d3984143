"""The group of each operator: fixed, ours, or one whose bits may vary."""

from __future__ import annotations

from functools import cache

from convgrad.torch.training import (  # noqa: F401 - they fill ROWS
    activations,
    attention,
    composites,
    ctc,
    elements,
    functions,
    grids,
    images,
    indexed,
    layers,
    losses,
    norms,
    optimizers,
    powers,
    products,
    random,
    softmax,
    sums,
    weights,
)
from convgrad.torch.training.fixed import FIXED, MOVES, OTHER_LIBRARIES
from convgrad.torch.training.row import ROWS, OperatorRow, overloads_of

FIXED_GROUP, OURS, VARIES = "fixed", "ours", "may vary"
_OF_LISTS = "_foreach_"
_CURES = {
    "allreduce": "Register convgrad.torch.join_gradients as the communication hook",
}
_OTHER_ARGUMENTS = "Pass arguments that convgrad computes: the error of same_bits() names the others"
_NO_CURE = "Use another operator, because convgrad has no definition of this one"
_BASES = {"norm": "linalg_vector_norm"}  # the operator that a _foreach_ operator calls for each tensor, by its name


@cache
def rows() -> dict[str, tuple[OperatorRow, str]]:
    """Return the row of each overload that convgrad computes, and how it stores: "new", "in place" or "out"."""
    return {
        name: (row, kind)
        for row in ROWS
        for overload in row.names
        for name, kind in overloads_of(overload).items()
        if kind == "new" or not row.records
    }


@cache
def _packets() -> frozenset[str]:
    return frozenset(name.split(".")[0] for name in rows())


@cache
def group_of(name: str) -> str:
    """Return the group of an operator, such as "aten::add_.Tensor".

    >>> group_of("aten::mul.Tensor"), group_of("aten::_foreach_add_.Scalar"), group_of("aten::lgamma")
    ('fixed', 'ours', 'may vary')
    """
    library, _, overload = name.partition("::")
    packet = overload.split(".")[0]
    if library != "aten":
        varying = OTHER_LIBRARIES.get(library)
        return VARIES if varying is None or packet in varying.split() else FIXED_GROUP
    if overload in rows():
        return OURS
    if packet.startswith(_OF_LISTS):  # calls the operator of its name on each tensor
        base = packet.removeprefix(_OF_LISTS).removesuffix("_")
        base = _BASES.get(base, base)
        return OURS if base in _packets() else FIXED_GROUP if base in FIXED else VARIES
    if packet in _MADE_OF_OTHERS or packet.removesuffix("_") in _MADE_OF_OTHERS:
        return OURS
    return FIXED_GROUP if packet in FIXED or packet.removesuffix("_") in FIXED else VARIES


_COMPOSITES = """
    add sub rsub mean _convolution norm logsumexp linalg_norm matmul linear _batch_norm_impl_index smooth_l1_loss
    huber_loss_backward smooth_l1_loss_backward _euclidean_dist std_mean l1_loss _safe_softmax
    rand rand_like randn randn_like uniform bernoulli exponential index_put random normal arange linspace logspace
    hann_window hamming_window blackman_window affine_grid_generator dist ldexp multinomial xlogy
"""
_MADE_OF_OTHERS = frozenset(_COMPOSITES.split())  # they only call other operators, which have groups of their own


def is_move(name: str) -> bool:
    """Return whether an operator only moves data, such as "aten::clone"."""
    packet = name.partition("::")[2].split(".")[0]
    return packet in MOVES or packet.removesuffix("_") in MOVES


def cure_of(name: str) -> str:
    """Return what to do about an operator whose bits may vary, or that convgrad computes only for other arguments."""
    if group_of(name) == OURS:
        return _OTHER_ARGUMENTS
    return next((cure for part, cure in _CURES.items() if part in name), _NO_CURE)
