"""Random weight and bias gradients whose samples are asked for one by one: a case as a call of the functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import convgrad
from convgrad.formats import F64
from convgrad.functional.call import Prepared, prepare
from convgrad.spec.operators import find
from tests.support.engine_helpers import Array
from tests.support.helpers import operands_of, random_case

BIAS = "BiasAddBackward"
SUMS = ("ConvolutionBackwardWeights", "ConvTransposeBackwardWeights", BIAS)


@dataclass(frozen=True)
class Samples:
    """A batch: its operator, its arrays as the caller has them, a shape where one is needed, the attributes."""

    operator: str
    arrays: tuple[Array, ...]
    shape: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any]

    @property
    def batch(self) -> int:
        return self.arrays[0].shape[0]

    @property
    def prepared(self) -> Prepared:
        return prepare(self.operator, (*self.arrays, *self.shape), self.attributes, lenient=True)

    @property
    def options(self) -> dict[str, Any]:
        """What the functions take: one of them has both operators of weights."""
        transposed = {} if self.operator == BIAS else {"transposed": find(self.operator).transposed}
        return self.attributes | transposed

    def norms2(self, arrays: tuple[Array, ...] | None = None, **options: Any) -> Array:
        """The function's answer, on other arrays where they are given."""
        bias = self.operator == BIAS
        function = convgrad.per_sample_bias_norm2 if bias else convgrad.per_sample_weights_norm2
        norms: Array = function(*(arrays or self.arrays), *self.shape, **self.options, **options)
        assert norms.dtype == np.float64
        assert norms.shape == (self.batch,)
        return norms

    def gradients(self, dtype: str | None = None) -> list[Array]:
        """The explicit gradients, image by image."""
        each = ([array[n : n + 1] for array in self.arrays] for n in range(self.batch))
        return [convgrad.run(self.operator, *one, *self.shape, dtype=dtype, **self.attributes) for one in each]


def samples_of(seed: int, kind: str, most: int = 1 << 62, f64: bool = False) -> Samples:
    """Return a random batch of at least one sample, of at most so many multiply-adds in all, of f64 or not."""
    rng = np.random.default_rng([17, seed])
    while True:
        case = random_case(rng, find(SUMS[seed % len(SUMS)]), axes=1 + seed // len(SUMS) % 4)
        if (case.format is F64) != f64 or not case.shapes[0][0]:
            continue
        operands = operands_of(case, kind, seed)  # type: ignore[arg-type]
        attributes = dict(case.attributes)
        shape = attributes.pop("weights_shape", None)
        if len(operands) == 3:
            shape = case.shapes[2]
        made = Samples(case.op.name, operands[:2], (tuple(shape),) if shape else (), attributes)  # type: ignore[arg-type]
        geometry = made.prepared.problem.geometry
        if getattr(geometry, "multiply_adds", 0) <= most:
            return made
