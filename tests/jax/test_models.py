"""convgrad.jax.reproducible on models of Flax and Equinox: the bits of explicit calls, on any processor."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from tests.support.engine_helpers import HOST, watched

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import convgrad.jax as cj  # noqa: E402
from convgrad.jax import reproducible  # noqa: E402
from tests.jax.test_reproducible import OURS, THEIRS, Model, assert_same, made  # noqa: E402


def flax_model(conv: Model) -> tuple[Model, Any]:
    """Return a loss, which also returns the statistics of a batch normalization, and its parameters."""
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Conv(4, 8, (3, 3), strides=2, rngs=rngs, conv_general_dilated=conv)
            self.norm = nnx.BatchNorm(8, rngs=rngs)
            self.second = nnx.Conv(8, 8, (3, 3), feature_group_count=4, rngs=rngs, conv_general_dilated=conv)
            self.up = nnx.ConvTranspose(8, 4, (2, 2), strides=(2, 2), rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = self.second(nnx.relu(self.norm(self.first(x))))
            return self.up(x) if conv is THEIRS else up(self.up, x)

    def up(layer: Any, x: Any) -> Any:
        return cj.lax.conv_transpose(x, layer.kernel[...], (2, 2), layer.padding) + layer.bias[...]

    graph, parameters, others = nnx.split(Net(nnx.Rngs(0)), nnx.Param, ...)

    def loss(parameters: Any, x: Any) -> Any:
        net = nnx.merge(graph, parameters, others, copy=True)
        value = jnp.square(net(x) - x).mean()
        return value, nnx.state(net, nnx.BatchStat)

    return loss, parameters


def equinox_model(conv: Model) -> tuple[Model, Any]:
    eqx = pytest.importorskip("equinox")

    class Explicit(eqx.Module):
        layer: Any

        def __call__(self, x: Any, key: Any = None) -> Any:
            of, bias = self.layer, self.layer.bias
            call = OURS(x[None], of.weight, of.stride, of.padding, None, of.dilation, feature_group_count=of.groups)
            return call[0] + bias

    keys = jax.random.split(jax.random.key(0), 2)
    layers = [eqx.nn.Conv2d(4, 8, 3, 2, padding=1, key=keys[0]), eqx.nn.Conv2d(8, 4, 3, groups=2, key=keys[1])]
    one, two = layers if conv is THEIRS else map(Explicit, layers)
    net = eqx.nn.Sequential([one, eqx.nn.Lambda(jax.nn.relu), two])

    def loss(net: Any, x: Any) -> Any:
        return jnp.square(jax.vmap(net)(x.transpose(0, 3, 1, 2))).mean(), net.layers[1]

    parameters, static = eqx.partition(net, eqx.is_array)
    return lambda parameters, x: loss(eqx.combine(parameters, static), x), parameters


def trained(loss: Model, parameters: Any) -> Any:
    """Return the gradients of each of three steps, and the parameters after the last."""
    step = jax.jit(jax.grad(lambda *given: loss(*given)[0]))
    gradients = []
    for seed in range(3):
        gradients.append(step(parameters, made(8, 16, 16, 4, seed=seed)))
        parameters = jax.tree.map(lambda p, g: p - np.float32(0.1) * g, parameters, gradients[-1])
    return [jax.tree.leaves(gradient) for gradient in gradients], jax.tree.leaves(parameters)


MODELS = {"flax": flax_model, "equinox": equinox_model}


@pytest.mark.parametrize("library", MODELS)
def test_training_has_the_bits_of_explicit_calls(library: str) -> None:
    theirs, ours = (MODELS[library](conv) for conv in (THEIRS, OURS))
    assert_same(trained(reproducible(theirs[0]), theirs[1]), trained(*ours))


@pytest.mark.parametrize("library", MODELS)
@pytest.mark.usefixtures("eight_cores")
def test_training_has_one_fingerprint(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On any number of threads and any instruction set."""
    if len(HOST) < 2:
        pytest.skip("one instruction set")
    loss, parameters = MODELS[library](THEIRS)
    seen, found = watched(monkeypatch), {}
    for isa in HOST[:2]:
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        for threads in (1, 2, 3):
            monkeypatch.setenv("CONVGRAD_NUM_THREADS", str(threads))
            found[isa, threads] = fingerprint(trained(reproducible(loss), parameters)[1])
    assert len({*found.values()}) == 1, found
    assert {(call.isa.name, call.threads) for call, _ in seen} == found.keys()


def fingerprint(arrays: list[Any]) -> str:
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def test_a_module_of_equinox_is_an_argument() -> None:
    """Its leaves that are no arrays, such as functions, pass."""
    eqx = pytest.importorskip("equinox")
    net = eqx.nn.Sequential([eqx.nn.Conv1d(2, 3, 3, key=jax.random.key(1)), eqx.nn.Lambda(jax.nn.relu)])

    def loss(net: Any, x: Any) -> Any:
        return jnp.square(jax.vmap(net)(x)).sum(), net

    gradient, same = eqx.filter_grad(reproducible(loss), has_aux=True)(net, made(2, 2, 6))
    layer = net.layers[0]
    ours = jax.grad(lambda w: jnp.square(jax.nn.relu(OURS(made(2, 2, 6), w, (1,), "VALID") + layer.bias)).sum())
    assert_same(gradient.layers[0].weight, ours(layer.weight))
    assert same.layers[1].fn is net.layers[1].fn


def test_a_module_of_flax_is_an_argument() -> None:
    nnx = pytest.importorskip("flax.nnx")
    theirs, ours = (nnx.Conv(2, 3, (3,), rngs=nnx.Rngs(0), conv_general_dilated=conv) for conv in (THEIRS, OURS))

    def loss(net: Any, x: Any) -> Any:
        return jnp.square(net(x)).sum()

    given = made(2, 6, 2)
    got, expected = nnx.grad(reproducible(loss))(theirs, given), nnx.grad(loss)(ours, given)
    assert_same(jax.tree.leaves(got), jax.tree.leaves(expected))
