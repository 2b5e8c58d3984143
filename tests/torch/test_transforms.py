"""Transforms of torch.func, nested, alone and under the modes of PyTorch that watch or trace operators."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import convgrad.torch as ct  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402
from tests.torch.layers import integers  # noqa: E402

F, func, vmap = torch.nn.functional, torch.func, torch.func.vmap
# What PyTorch itself warns of: it loads TorchScript for tangents, and loops where it has no rule of vmap.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script",
    "ignore:There is a performance drop",
    "ignore:Using padding='same'",
    "ignore:Attempted to insert a get_attr Node",
)

Function = Callable[..., Any]


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs or {})


class Override(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs or {})


LAYERS: dict[str, tuple[Callable[[Any], Function], tuple[tuple[int, ...], ...]]] = {
    "conv1d": (lambda m: lambda *o: m.conv1d(*o, stride=2, padding=1), ((2, 2, 6), (4, 2, 3), (4,))),
    "conv2d": (lambda m: lambda *o: m.conv2d(*o, padding="same", groups=2), ((2, 2, 4, 3), (2, 1, 3, 2), (2,))),
    "conv_transpose1d": (
        lambda m: lambda *o: m.conv_transpose1d(*o, stride=2, output_padding=1), ((2, 2, 3), (2, 2, 3), (2,))
    ),
    "conv_transpose2d": (
        lambda m: lambda *o: m.conv_transpose2d(*o, padding=1, dilation=2), ((1, 2, 3, 3), (2, 2, 2, 2), (2,))
    ),
    "linear": (lambda m: m.linear, ((3, 4), (2, 4), (2,))),
}  # fmt: skip


def loss(layer: Function) -> Function:
    return lambda *o: layer(*o).square().sum()


def dual(layer: Function) -> Function:
    """Return a layer's tangent by dual tensors."""

    def tangent(*operands: Any) -> Any:
        with torch.autograd.forward_ad.dual_level():
            given = [torch.autograd.forward_ad.make_dual(t, t) for t in operands]
            return torch.autograd.forward_ad.unpack_dual(layer(*given)).tangent.clone()

    return tangent


def backward(layer: Function) -> Function:
    def gradients(*operands: Any) -> Any:
        given = [t.detach().requires_grad_() for t in operands]
        return torch.autograd.grad(loss(layer)(*given), given)

    return gradients


ALL = (0, 1, 2)
ALONE: dict[str, Callable[[Function], Function]] = {
    "result": lambda f: f,
    "backward": backward,
    "dual": dual,
    "grad": lambda f: func.grad(loss(f), ALL),
    "vjp": lambda f: lambda *o: func.vjp(f, *o)[1](f(*o)),
    "jvp": lambda f: lambda *o: func.jvp(f, o, o),
    "jacrev": lambda f: func.jacrev(f, ALL),
    "jacfwd": lambda f: func.jacfwd(f, ALL),
    "hessian": lambda f: func.hessian(loss(f), 1),
    "jvp of grad": lambda f: lambda *o: func.jvp(func.grad(loss(f), ALL), o, o),
    "grad of jvp": lambda f: func.grad(lambda *o: func.jvp(loss(f), o, o)[1], ALL),
    "grad of grad": lambda f: func.grad(lambda *o: sum(g.square().sum() for g in func.grad(loss(f), ALL)(*o)), ALL),
    "linearize": lambda f: lambda *o: func.linearize(f, *o)[1](*o),
}
# Transforms of operands of which some have another axis: 0, 1 or -1, or no such axis.
BATCHED: dict[str, Callable[[Function, Any], Function]] = {
    "vmap": vmap,
    "vmap of grad": lambda f, dims: vmap(func.grad(loss(f), ALL), dims),
    "grad of vmap": lambda f, dims: func.grad(lambda *o: vmap(f, dims)(*o).square().sum(), ALL),
    "jvp of vmap": lambda f, dims: lambda *o: func.jvp(vmap(f, dims), o, o),
    "vmap of jvp": lambda f, dims: vmap(lambda *o: func.jvp(f, o, o), dims),
    "vmap of jacrev": lambda f, dims: vmap(func.jacrev(f, 1), dims),
    "backward of vmap": lambda f, dims: backward(vmap(f, dims)),
    "vmap of vmap": lambda f, dims: vmap(vmap(f, dims), tuple(None if dim is None else -1 for dim in dims)),
}
DIMS = [(0, None, None), (None, 0, None), (None, None, 0), (1, -1, 0), (-1, None, 0)]
MODES: dict[str, Callable[[], Any]] = {
    "no mode": nullcontext,
    "dispatch": Watch,
    "flops": lambda: FlopCounterMode(display=False),
    "function": Override,
}


def flat(values: Any) -> list[Any]:
    return [values] if isinstance(values, torch.Tensor) else [one for value in values for one in flat(value)]


def traced(function: Function, operands: list[Any], pre_dispatch: bool = False) -> list[Any]:
    """Return the results of a trace of other values."""
    return flat(make_fx(function, pre_dispatch=pre_dispatch)(*[1 - t for t in operands])(*operands))


def computed(mode: str, function: Function, operands: list[Any]) -> list[Any]:
    if mode == "make_fx":
        return traced(function, operands)
    with MODES[mode]():
        return flat(function(*operands))


def same(found: list[Any], wanted: list[Any]) -> bool:
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@tiers("transform, mode, name", list(ALONE), [*MODES, "make_fx"], list(LAYERS), every=29)
def test_transforms(transform: str, mode: str, name: str) -> None:
    """Small integers, so == to PyTorch's own, whatever the mode."""
    layer, shapes = LAYERS[name]
    operands = [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    ours, theirs = (ALONE[transform](layer(module)) for module in (ct, F))
    assert same(computed(mode, ours, operands), flat(theirs(*operands)))


@pytest.mark.every(3)
@pytest.mark.parametrize("transform", ["result", "backward"])
@pytest.mark.parametrize("name", LAYERS)
def test_traces_before_dispatch(name: str, transform: str) -> None:
    """PyTorch's own gradients are constants of such a trace."""
    layer, shapes = LAYERS[name]
    operands = [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    ours, theirs = (ALONE[transform](layer(module)) for module in (ct, F))
    assert same(traced(ours, operands, pre_dispatch=True), flat(theirs(*operands)))


@pytest.mark.every(3)
@pytest.mark.parametrize("at", [0, 1], ids=["input", "weight"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_trace_in_which_only_a_shape_has_a_tangent(name: str, at: int) -> None:
    """The gradient of a sum with respect to a factor does not depend on the factor's values."""
    layer, shapes = LAYERS[name]
    operands = [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    total = func.grad(lambda *o: layer(ct)(*o).sum(), at)
    _, tangent = func.linearize(lambda one: total(*operands[:at], one, *operands[at + 1 :]), operands[at])
    assert torch.equal(tangent(operands[at]), torch.zeros_like(operands[at]))


@tiers("transform, dims, mode, name", list(BATCHED), DIMS, [*MODES, "make_fx"], list(LAYERS), every=89)
def test_batched_transforms(transform: str, dims: tuple[int | None, ...], mode: str, name: str) -> None:
    layer, shapes = LAYERS[name]
    operands = []
    for seed, (shape, dim) in enumerate(zip(shapes, dims, strict=True)):
        one = integers(3, *shape, seed=seed) if dim is not None else integers(*shape, seed=seed)
        one = one if dim is None else one.movedim(0, dim)
        operands.append(torch.stack([one, 2 - one], -1) if dim is not None and transform == "vmap of vmap" else one)
    ours, theirs = (BATCHED[transform](layer(module), dims) for module in (ct, F))
    assert same(computed(mode, ours, operands), flat(theirs(*operands)))


@tiers("transform, dims, mode, name", list(BATCHED)[:-1], DIMS, [*MODES, "make_fx"], list(LAYERS), every=101)
def test_vmap_over_no_elements(transform: str, dims: tuple[int | None, ...], mode: str, name: str) -> None:
    """As vmap over two elements, of which none is left. PyTorch's own have results of a wrong shape."""
    layer, shapes = LAYERS[name]
    given: list[list[Any]] = [[], []]
    for shape, dim in zip(shapes, dims, strict=True):
        two = integers(*shape) if dim is None else integers(2, *shape).movedim(0, dim)
        given[0].append(two)
        given[1].append(two if dim is None else two.narrow(dim, 0, 0))
    function = BATCHED[transform](layer(ct), dims)
    found, two = computed(mode, function, given[1]), flat(function(*given[0]))
    for at, (empty, full) in enumerate(zip(found, two, strict=True)):
        gradient = transform in ("grad of vmap", "backward of vmap")
        expected = given[1][at].shape if gradient else (0, *full.shape[1:])
        assert empty.shape == expected
        assert not torch.count_nonzero(empty)


@tiers("transform, name", ["result", "backward", "dual", "grad", "vjp", "jvp"], list(LAYERS), every=3)
def test_operations_are_counted_as_pytorch_counts(transform: str, name: str) -> None:
    layer, shapes = LAYERS[name]
    operands = [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    counts = []
    for module in (ct, F):
        with FlopCounterMode(display=False) as counter:
            ALONE[transform](layer(module))(*operands)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0
