"""What holds of the arrays of any library that operators take; test_tensors.py and tests/jax/test_arrays.py run it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import convgrad
from convgrad import arrays
from convgrad.formats import F32 as FORMAT_F32
from convgrad.graph import Graph, LogicalTensor, Op
from convgrad.verify import check, exact
from tests.support.roles import DTYPES, F32, Array, Role, roles, same

LAYER: dict[str, Any] = {"strides": [1], "dilations": [1]}


class ArraysOfALibrary:
    """Tests of a library; a subclass says what its arrays are, how they are made, and where they are."""

    kind: ClassVar[type]
    formats: ClassVar[tuple[str, ...]]

    def made(self, array: Array) -> Any:
        """Return an array of the library with the values of one of NumPy's."""
        raise NotImplementedError

    def values(self, result: Any) -> Array:
        """Return the values of an array of the library."""
        raise NotImplementedError

    def address(self, array: Any) -> int:
        raise NotImplementedError

    def ones(self, *shape: int, name: str = FORMAT_F32.name) -> Any:
        return self.made(np.ones(shape, DTYPES[name]))

    @roles
    def test_arrays_give_arrays(self, role: Role) -> None:
        """The first operand decides."""
        for name in self.formats if len(role.shapes) == 1 else ("f32",):
            operands = role.operands(DTYPES[name])
            given = [self.made(operand) for operand in operands]
            result = role(*given)
            assert isinstance(result, self.kind)
            assert same(self.values(result), role(*operands)), name
            assert isinstance(role(given[0], *operands[1:]), self.kind)
            assert type(role(operands[0], *given[1:])) is np.ndarray

    def test_no_memory_is_copied(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither an operand's nor the result's: both are where the library has them."""
        made: list[int] = []
        aligned = arrays.aligned

        def watched(shape: tuple[int, ...], dtype: Any) -> Array:
            made.append((result := aligned(shape, dtype)).ctypes.data)
            return result

        monkeypatch.setattr(arrays, "aligned", watched)
        for name in self.formats:
            given = self.ones(2, 4, 3, name=name)
            array, fmt = arrays.take(given, "", "src")
            assert (array.ctypes.data, fmt.name) == (self.address(given), name)
            made.clear()
            results = [convgrad.bias_add_backward(given), convgrad.compile("BiasAddBackward", given)(given)]
            assert [self.address(result) for result in results] == made
            assert [result.tolist() for result in results] == [[8.0] * 3] * 2

    def test_a_result_outlives_what_made_it(self) -> None:
        src = self.made(np.arange(6, dtype=F32).reshape(2, 3))
        result = convgrad.bias_add(src, self.ones(3))
        del src
        other = [np.full(6, 9.0, F32) for _ in range(50)]
        assert result.flatten().tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        del other

    def test_out_of_numpy_is_returned(self) -> None:
        out = np.zeros(3, F32)
        assert convgrad.bias_add_backward(self.ones(2, 3), out=out) is out
        assert out.tolist() == [2.0] * 3

    def test_shapes_may_be_the_librarys(self) -> None:
        for dtype in (np.int64, np.int32):
            shape = self.made(np.array((3, 1, 1), dtype))
            result = convgrad.convolution_backward_weights(self.ones(1, 6, 1), self.ones(1, 4, 1), shape)
            assert result.flatten().tolist() == [4.0] * 3

    def test_a_graphs_results_are_of_the_library_of_what_they_come_from(self) -> None:
        src, weights = LogicalTensor(0, "f32", (1, 6, 1)), LogicalTensor(1, "f32", (3, 1, 1))
        dst, bias = LogicalTensor(2), LogicalTensor(3, "f32")
        ops = [
            Op(0, "Convolution", (src, weights), (dst,), LAYER),
            Op(1, "BiasAddBackward", (dst,), (LogicalTensor(4),), {}),
            Op(2, "BiasAddBackward", (bias,), (LogicalTensor(5),), {}),
        ]
        graph = Graph(ops, outputs=[2, 4, 5])
        graph.finalize()
        given = {0: self.ones(1, 6, 1), 1: np.ones((3, 1, 1), F32), 3: np.ones((2, 2), F32)}
        results = graph.run(given).results
        assert [isinstance(results[number], self.kind) for number in (2, 4, 5)] == [True, True, False]
        assert [value.flatten().tolist() for value in results.values()] == [[3.0] * 4, [12.0], [2.0, 2.0]]
        compiled = graph.partitions()[0].compile()
        assert isinstance(compiled({0: given[0], 1: given[1]})[2], self.kind)

    def test_verify_takes_arrays(self) -> None:
        src, weights = self.made(np.arange(6, dtype=F32).reshape(1, 6, 1)), self.ones(3, 1, 1)
        result: Any = exact("Convolution", src, weights, dtype="bf16", **LAYER)
        assert isinstance(result, self.kind)
        assert same(self.values(result), np.array([3, 6, 9, 12], DTYPES["bf16"]).reshape(1, 4, 1))
        assert str(check("Convolution", result, src, weights, **LAYER)).startswith("ok: 4 of 4 equal")
        assert check("Convolution", result + 1, src, weights, **LAYER).outcome == "wrong"
        bound = convgrad.error_bound("Convolution", src, weights, **LAYER)
        expected = convgrad.error_bound("Convolution", self.values(src), self.values(weights), **LAYER)
        assert isinstance(bound, self.kind)
        assert same(self.values(bound), expected)
