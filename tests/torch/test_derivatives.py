"""Derivatives of the operators on PyTorch's tensors: by differences, of any order, in batches, by torch.func."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from tests.support.tiers import tiers

torch = pytest.importorskip("torch")

from convgrad.torch.attributes import OpAttributes  # noqa: E402
from convgrad.torch.operators import call  # noqa: E402
from tests.torch.layers import LAYERS, Layer, bits, cotangent  # noqa: E402

F = torch.nn.functional
SMALL = {  # so few numbers that each can be moved alone
    "1-D": Layer((2, 2, 6), (2, 2, 3), begin=1, stride=2),
    "all": Layer((1, 4, 6, 5), (4, 2, 2, 2), stride=(2, 3), begin=(2, 1), dilation=(1, 2), groups=2),
    "remainder": Layer((1, 1, 6, 7), (2, 1, 3, 3), stride=4),
    "no bias": Layer((2, 1, 3, 3), (2, 1, 2, 2), bias=False),
    "uneven pads": Layer((1, 1, 4, 3), (2, 1, 3, 3), begin=(2, 0), end=(0, 1), stride=2),
    "3-D": Layer((1, 2, 2, 3, 2), (2, 1, 2, 2, 1), begin=(1, 0, 0), groups=2),
    "4-D": Layer((1, 1, 2, 2, 3, 2), (2, 1, 1, 2, 2, 1), stride=2),
    "transposed": Layer((1, 2, 3, 2), (2, 1, 3, 2), True, stride=2, begin=1, groups=2, rest={"output_padding": 1}),
    "transposed far": Layer((1, 1, 2, 2), (1, 2, 2, 2), True, dilation=3, stride=2, rest={"output_padding": 2}),
    "transposed uneven": Layer((1, 1, 3, 2), (1, 1, 3, 3), True, begin=(2, 0), end=(0, 1), stride=2),
    "transposed 1-D": Layer((2, 1, 3), (1, 2, 3), True, stride=3, bias=False),
}


FORWARD = {"check_forward_ad": True, "check_batched_forward_grad": True}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # what PyTorch loads for tangents
@tiers("name", list(SMALL), every=3)
def test_derivatives_by_differences(name: str) -> None:
    operands = SMALL[name].operands(torch.float64, 0, grad=True)
    assert torch.autograd.gradcheck(SMALL[name], operands, check_batched_grad=True, **FORWARD)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@tiers("name", list(SMALL), every=11)
def test_second_derivatives_by_differences(name: str) -> None:
    operands = SMALL[name].operands(torch.float64, 0, grad=True)
    assert torch.autograd.gradgradcheck(SMALL[name], operands, check_batched_grad=True, check_fwd_over_rev=True)


@tiers("name", ["all", "uneven pads", "transposed uneven"], every=3)
def test_third_derivatives(name: str) -> None:
    """Of a sum of squares, whose derivatives meet every role: ours by autograd is PyTorch's, on integers.

    PyTorch 2.13 has none of a transposed layer with output_padding.
    """
    layer = SMALL[name]

    def derivatives(apply: Any) -> list[Any]:
        operands = layer.operands(torch.float64, 3, integers=True, grad=True)
        value, found = apply(*operands).square().sum(), []
        for _ in range(3):
            gradients = torch.autograd.grad(value, operands[:2], create_graph=True)
            found += gradients
            value = sum((g * g).sum() for g in gradients) / 64
        return found

    ours = derivatives(layer)
    theirs = derivatives(lambda *o: unevenly(layer, *o))
    assert len(ours) == 6
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


def unevenly(layer: Layer, input: Any, weight: Any, bias: Any) -> Any:
    """Return the layer by PyTorch, which pads evenly alone: what lies beside is added or cut."""
    words = {"stride": layer.stride, "dilation": layer.dilation, "groups": layer.groups}
    begin, end = (p if isinstance(p, tuple) else (p,) * layer.axes for p in (layer.begin, layer.end or layer.begin))
    pads = [pad for pair in zip(reversed(begin), reversed(end), strict=True) for pad in pair]
    if not layer.transposed:
        return F.conv2d(F.pad(input, pads), weight, bias, **words)
    return F.pad(F.conv_transpose2d(input, weight, bias, **words, **layer.rest), [-pad for pad in pads])


def test_a_derivative_that_is_not_there() -> None:
    """A gradient that does not depend on what is asked for is none, and not zeros that somebody computed."""
    x, w, b = LAYERS["plain"].operands(torch.float32, 0, grad=True)
    (g,) = torch.autograd.grad(LAYERS["plain"](x, w, b).sum(), b, create_graph=True)
    assert not g.requires_grad
    y, z = LAYERS["plain"](x, w, b), LAYERS["plain"](x, w, b)
    assert torch.autograd.grad(y.sum(), (x, z), allow_unused=True)[1] is None


@tiers("name", ["plain", "transposed"], every=2)
def test_many_cotangents_at_once(name: str) -> None:
    layer = LAYERS[name]
    operands = layer.operands(torch.float32, 0, grad=True)
    y = layer(*operands)
    vs = torch.stack([cotangent(y, seed) for seed in range(3)])
    found = torch.autograd.grad(y, operands, vs, is_grads_batched=True, retain_graph=True)
    for at, v in enumerate(vs):
        alone = torch.autograd.grad(y, operands, v, retain_graph=True)
        assert [bits(t[at]) for t in found] == [bits(t) for t in alone]


@pytest.mark.parametrize("in_dims", [(0, None, None), (None, 1, None), (2, 0, 1)])
def test_vmap_has_the_bits_of_each_alone(in_dims: tuple[int | None, ...]) -> None:
    layer, numbers = LAYERS["all"], count()
    each = [layer.operands(torch.float32, next(numbers)) for _ in range(3)]
    stacked = [
        each[0][at] if dim is None else torch.stack([one[at] for one in each], dim) for at, dim in enumerate(in_dims)
    ]
    found = torch.func.vmap(layer, in_dims)(*stacked)
    geometry = (2, 3), (2, 1), (2, 1), (1, 2), 2, False  # by the dispatcher too, as where it is traced
    assert bits(torch.func.vmap(lambda *o: torch.ops.convgrad.forward(*o, *geometry), in_dims)(*stacked)) == bits(found)
    for at, one in enumerate(each):
        operands = [each[0][k] if dim is None else one[k] for k, dim in enumerate(in_dims)]
        assert bits(found[at]) == bits(layer(*operands))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # what PyTorch loads for them
@tiers("name", list(SMALL), every=4)
@pytest.mark.parametrize("moved", ["100", "010", "001", "111"])
def test_tangents_are_those_of_what_is_linear(name: str, moved: str) -> None:
    """An operand that is its own tangent adds what the layer is without the other summand; on integers, exactly."""
    layer, forward = SMALL[name], torch.autograd.forward_ad
    operands = layer.operands(torch.float32, 3, integers=True)
    product = layer(*operands[:2], *[None] * len(operands[2:]))
    summands = (product, product, layer(*operands) - product)
    wanted = sum(one for one, moves in zip(summands, moved, strict=True) if moves == "1")
    with forward.dual_level():
        given = [forward.make_dual(t, t) if moves == "1" else t for t, moves in zip(operands, moved, strict=False)]
        found = forward.unpack_dual(layer(*given)).tangent
    assert torch.equal(wanted if found is None else found, wanted)
    assert (found is None) == ("1" not in moved[: len(operands)])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("name", ["all", "uneven pads", "transposed", "1-D"])
def test_hessians_are_of_one_kind(name: str) -> None:
    """torch.func.hessian is forward over reverse; reverse over reverse is the same, on integers."""
    layer = SMALL[name]
    x, w, b = layer.operands(torch.float32, 3, integers=True)

    def loss(x: Any, w: Any) -> Any:
        return layer(x, w, b).pow(2).sum()

    both = (0, 1)
    found = torch.func.hessian(loss, both)(x, w)
    wanted = torch.func.jacrev(torch.func.jacrev(loss, both), both)(x, w)
    for row, other in zip(found, wanted, strict=True):
        assert all(torch.equal(one, another) for one, another in zip(row, other, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("name", ["transposed far", "all"])
def test_functional_derivatives(name: str) -> None:
    """torch.func's are autograd's, and per-sample gradients are each sample's."""
    layer = SMALL[name]
    x, w, b = layer.operands(torch.float32, 0)

    def loss(w: Any, x: Any) -> Any:
        return layer(x, w, b).square().sum()

    wanted = w.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(wanted, x), wanted)
    assert bits(torch.func.grad(loss)(w, x)) == bits(expected)
    xs = torch.stack([x, 2 * x])
    assert bits(torch.func.vmap(torch.func.grad(loss), (None, 0))(w, xs)[0]) == bits(expected)
    rows = torch.func.jacrev(layer, 1)(x, w, b)
    assert rows.shape == (*layer(x, w, b).shape, *w.shape)
    basis = torch.zeros(layer(x, w, b).shape)
    basis.view(-1)[5] = 1
    (row,) = torch.autograd.grad(layer(x, wanted, b), wanted, basis)
    assert bits(rows.reshape(-1, *w.shape)[5]) == bits(row)


def test_what_was_written_to_since_is_seen() -> None:
    operands = LAYERS["plain"].operands(torch.float32, 0, grad=True)
    y = LAYERS["plain"](*operands)
    with torch.no_grad():
        operands[1].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.long
def test_one_gradient_checkpointed() -> None:
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    layer = LAYERS["all"]
    found = []
    for apply in (layer, lambda *o: checkpoint(layer, *o, use_reentrant=False)):
        operands = layer.operands(torch.float32, 0, grad=True)
        found.append([bits(t) for t in torch.autograd.grad(apply(*operands).square().sum(), operands)])
    assert found[0] == found[1]


def test_who_looks_on_sees_the_operator() -> None:
    """Modes of dispatch see the operators by name, forward and backward; so do what they intercept and count."""
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    seen: list[str] = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **kwargs or {})

    operands = LAYERS["plain"].operands(torch.float32, 0, grad=True)
    with Look():
        LAYERS["plain"](*operands).sum().backward()
    ours = [name for name in seen if name.startswith("convgrad.")]
    assert ours == [
        f"convgrad.{name}.default" for name in ("forward", "data_gradient", "weight_gradient", "bias_gradient")
    ]


def test_an_operator_called_wrongly_is_refused() -> None:
    """Extents that no layer has are refused before any work, however an operator is called."""
    x, w, _ = LAYERS["plain"].operands(torch.float32, 0)
    one, zero = (1, 1), (0, 0)
    layer = OpAttributes(one, zero, zero, None, one, 1, False)
    with pytest.raises(ValueError, match="A9"):
        call("data_gradient", x, w[:4], None, None, layer.padded((zero, zero), one))
    with pytest.raises(ValueError, match=r"src must have 9 positions on spatial axis 0, .* got 40 .G7"):
        call("data_gradient", x, w[:4], None, torch.empty(1, 1, 40, 40), layer)
    with pytest.raises(ValueError, match="ConvTransposeBackwardWeights"):
        call("weight_gradient", x, x[:, :, :2, :2], None, (3, 3), layer)
    with pytest.raises(ValueError, match="strides must have one value per spatial axis"):
        torch.ops.convgrad.forward(x, w, None, [1], [0], [0], [1], 1, False)
