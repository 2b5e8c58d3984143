"""benchmarks/tiles_training.py: networks learn, by tiles as by the direct sum."""

from __future__ import annotations

from argparse import Namespace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits
from tests.support.places import BENCHMARKS


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, which lies beside the package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import tiles_training  # noqa: PLC0415

    return tiles_training


@pytest.mark.skipif(not HOST, reason="no generated kernels run here")
def test_a_few_steps_have_all_rows(program: Any) -> None:
    rng = np.random.default_rng(2)
    images, labels = rng.standard_normal((program.SPLIT + 3, 8, 8, 1)).astype(np.float32), rng.integers(0, 10, 1440)
    rows = list(program.train("digits", images, labels, Namespace(steps=3, batch=64)))
    assert [(row["step"], row["max_error"]) for row in rows] == list(product((1, 2, 3), (1, 8, 64)))
    losses = {most: [row["loss"] for row in rows if row["max_error"] == most] for most in (1, 8, 64)}
    assert 0 < rows[-1]["apart"] < 1e-3
    np.testing.assert_allclose(losses[64], losses[1], rtol=1e-2)
    assert rows[2]["tiles"] == "4x4 4x4 4x4"


@pytest.mark.parametrize("name", ["digits", "resnet"])
def test_a_backward_is_the_derivative(name: str, program: Any) -> None:
    """Of the loss by arrays that are learned, against differences along the gradient itself."""
    rng = np.random.default_rng(3)
    images, labels = rng.standard_normal((4, 8, 8, 1)).astype(np.float32), np.array([1, 2, 3, 4])

    def loss(changed: int, by: float) -> float:
        one = program.network(name)
        one.learned[changed].value[...] += np.float32(by) * directions[changed]
        return program.step(one, images, labels, 0.0)

    network = program.network(name)
    assert_same_bits(network.learned[1].value, program.network(name).learned[1].value, "the first weights")
    program.step(network, images, labels, 0.0)
    lengths = [float(np.linalg.norm(each.gradient)) for each in network.learned]
    directions = [each.gradient / np.float32(length) for each, length in zip(network.learned, lengths, strict=True)]
    for number in (0, 1, len(lengths) - 1):
        assert (loss(number, 1e-2) - loss(number, -1e-2)) / 2e-2 == pytest.approx(lengths[number], rel=0.05)
