"""The operators as PyTorch traces them: opcheck, compiled whole, exported, with sizes that are symbols."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.tiers import tiers  # noqa: E402
from tests.torch.layers import LAST, LAYERS, TYPES, Layer, bits, cotangent, ct  # noqa: E402

OPS = torch.ops.convgrad
# What PyTorch itself warns of while it compiles; of ours there is none.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning")


def each(value: Any, axes: int) -> list[int]:
    return list(value) if isinstance(value, tuple) else [value] * axes


def calls(layer: Layer, fmt: str, grad: bool, last: bool) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the operators that a layer and its derivatives call, with their arguments."""
    x, w, *b = layer.operands(TYPES[fmt], 0)
    if last and layer.axes in (2, 3):
        x = x.contiguous(memory_format=LAST[layer.axes + 2])
    last = last and layer.axes in (2, 3)
    y = layer(x, w, *b)
    v = cotangent(y, 1)
    s, begin, end, d = (
        each(p, layer.axes) for p in (layer.stride, layer.begin, layer.end or layer.begin, layer.dilation)
    )
    x, w, v, *b = (t.detach().requires_grad_(grad) for t in (x, w, v, *b))
    bias = b[0] if b else None
    kernel = list(w.shape[2:])
    if layer.transposed:
        more = each(layer.rest.get("output_padding", 0), layer.axes)
        first = (OPS.data_gradient, (x, w, bias, None, s, begin, end, more, d))
        ends = [pad - rest for pad, rest in zip(end, more, strict=True)]
        others = [(OPS.forward, (v, w, None, s, begin, ends, d))]
        others += [(OPS.weight_gradient, (v, x, None, kernel, s, begin, ends, d))]
    else:
        first = (OPS.forward, (x, w, bias, s, begin, end, d))
        others = [(OPS.data_gradient, (v, w, None, x.detach(), s, begin, end, None, d))]
        others += [(OPS.weight_gradient, (x, v, None, kernel, s, begin, end, d))]
        others += [(OPS.weight_gradient, (x, v, w.detach(), None, s, begin, end, d))]
    made = [(op.default, (*given, layer.groups, last)) for op, given in (first, *others)]
    return [*made, (OPS.bias_gradient.default, (v,))]


@pytest.mark.long
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fmt", TYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_opcheck(name: str, fmt: str, grad: bool, last: bool) -> None:
    """Schema, autograd's registration, shapes and strides while tracing, and AOT with sizes that are symbols."""
    for op, given in calls(LAYERS[name], fmt, grad, last):
        found = torch.library.opcheck(op, given)
        assert set(found.values()) == {"SUCCESS"}


@pytest.fixture
def _anew() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@tiers("name", ["all", "transposed"], every=2)
def test_traced_with_symbols(name: str) -> None:
    """Of other sizes than it was traced on, a layer and its gradients have the bits that they have when called."""
    layer = LAYERS[name]
    x, w, b = layer.operands(torch.float32, 0)

    def both(*operands: Any) -> tuple[Any, ...]:
        operands = tuple(t.detach().requires_grad_() for t in operands)
        y = layer(*operands)
        return y, *torch.autograd.grad(y.square().sum(), operands)

    traced = make_fx(both, tracing_mode="symbolic")(x, w, b)
    for given in (x, torch.cat([x, x], 2), torch.cat([x, x, x])):
        assert [bits(t) for t in traced(given, w, b)] == [bits(t) for t in both(given, w, b)]
    ours = [str(node.target) for node in traced.graph.nodes if "convgrad" in str(node.target)]
    assert len(ours) == 4


@pytest.mark.long
@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_compiled_whole(name: str, dynamic: bool, backend: str) -> None:
    """Results and gradients have the bits that they have when each is called."""
    layer = LAYERS[name]
    compiled = torch.compile(lambda *o: layer(*o).square(), fullgraph=True, dynamic=dynamic, backend=backend)
    for images in (1, 2, 3):
        x, *others = layer.operands(torch.float32, images)
        found = []
        for apply in (compiled, lambda *o: layer(*o).square()):
            operands = [t.clone().requires_grad_() for t in (x[:1].expand(images, *x.shape[1:]), *others)]
            y = apply(*operands)
            found.append([bits(t) for t in (y, *torch.autograd.grad(y.sum(), operands))])
        assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.usefixtures("_anew")
@pytest.mark.parametrize("dynamic", [True, False])
def test_compiled_with_channels_last_and_autocast(dynamic: bool) -> None:
    layer = LAYERS["all"]
    x, w, b = layer.operands(torch.float32, 0)
    x = x.contiguous(memory_format=torch.channels_last)
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = compiled(x, w, b), layer(x, w, b)
    assert found.dtype is torch.bfloat16
    assert found.stride() == expected.stride()
    assert bits(found) == bits(expected)


class _Model(torch.nn.Module):
    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        _, weight, *bias = layer.operands(torch.float32, 0)
        self.weight, self.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias[0])

    def forward(self, x: Any) -> Any:
        return self.layer(x, self.weight, self.bias)


@pytest.mark.long
@pytest.mark.parametrize("name", ["all", "transposed", "3-D", "1-D"])
def test_exported_with_sizes_to_come(name: str) -> None:
    layer = LAYERS[name]
    x, model = layer.operands(torch.float32, 0)[0], _Model(layer)
    x = torch.cat([x, x])
    sizes = ({0: torch.export.Dim("images", min=2, max=64), 2: torch.export.Dim("height", min=6, max=64)},)
    exported = torch.export.export(model, (torch.cat([x, x], 2),), dynamic_shapes=sizes)
    for images, times in ((2, 2), (4, 3)):
        given = torch.cat([x[:images]] * times, 2)
        assert bits(exported.module()(given)) == bits(model(given))
    assert any(node.op == "call_function" and "convgrad" in str(node.target) for node in exported.graph.nodes)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.script", "ignore:The .grad attribute")  # Dynamo's, where it goes on
@pytest.mark.parametrize("inside", [True, False], ids=["of what is compiled", "compiled"])
def test_tangents_are_not_lost_where_it_is_compiled(inside: bool) -> None:
    """The dispatcher would lose them: a graph is cut there, and Dynamo follows no kernel."""
    torch.compiler.reset()
    x, w, b = LAYERS["plain"].operands(torch.float32, 0)

    def layer(x: Any) -> Any:
        return ct.conv2d(x, w, b)

    def tangent(layer: Any) -> Any:
        return lambda x: torch.func.jvp(layer, (x,), (x,))[1]

    compiled = torch.compile(backend="eager")
    found = (tangent(compiled(layer)) if inside else compiled(tangent(layer)))(x)
    assert torch.count_nonzero(found)
    assert torch.equal(found, tangent(layer)(x))
