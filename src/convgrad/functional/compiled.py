"""Compiled calls. Checks, plan and kernel are prepared once, and reused for arrays of the same shapes and type."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convgrad import arrays, engines
from convgrad.arrays.libraries import on_its_threads
from convgrad.engines.addresses import address_of
from convgrad.engines.engine import Call
from convgrad.engines.settings import count
from convgrad.functional.call import canonical, check_options, handed_over, prepare, room
from convgrad.functional.types import Array, DType
from convgrad.parameters import described
from convgrad.spec.operators import Operator
from convgrad.spec.problem import Problem
from convgrad.spec.rules import refuse


@dataclass(frozen=True, eq=False)
class Compiled:
    """An operator compiled for operands of known shapes and type. You can call it many times, from any thread.

    :func:`compile` makes it.

    Args:
        op: The operator.
        problem: The geometry, layouts and types of the call.
        names: The names of the array operands. Shape operands are part of ``problem``.
        shapes: The shapes of the array operands.
        choice: The engine that computes the call, and the reasons why others do not.
        threads: The largest number of threads.
        strides: The strides in bytes of the operands and of the result for which ``call`` is prepared. It is empty if
            an operand has the other byte order.
        call: The prepared call.
    """

    op: Operator
    problem: Problem
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    choice: engines.Choice
    threads: int
    strides: Sequence[tuple[int, ...]]  # strides of operands and output for which ``call`` is compiled
    call: Call  # computes from the addresses of arrays with these strides

    def __call__(self, *operands: object, out: Array | None = None) -> Array:
        """Compute the result into ``out`` or a new array, and return that array.

        A new array belongs to the first operand's library.

        Args:
            *operands: The arrays of the call, in the order of the inputs that were compiled, without shape inputs.
            out: The array that the result is written to; None makes a new one. Default: None.

        Raises:
            InvalidShapeError: The operands do not have the compiled shapes.
            InvalidDataTypeError: The operands do not have the compiled type.
        """
        problem, names = self.problem, self.names
        if len(operands) != len(names):  # O2
            refuse(
                "O2", self.op.name, f"it was compiled for the operands {', '.join(names)}; got {len(operands)} operands"
            )
        if problem.accumulate and out is None:
            check_options(self.op.name, out, True, None)
        taken: dict[str, Array] = {}
        strides: list[object] = []
        dtype = problem.operand_format.dtype
        for name, shape, value in zip(names, self.shapes, operands, strict=True):
            if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
                taken[name] = value
                strides.append(value.strides)
            else:
                taken[name] = array = self._taken(name, shape, value)
                strides.append(array.strides if array.dtype is dtype else None)
        first = operands[0]
        plain = type(first) is np.ndarray
        result = room(problem, out, taken, not plain)
        strides.append(result.strides)
        if strides == self.strides and type(result) is np.ndarray:
            used = tuple(taken.values())
            on_its_threads(first, self.call.at, [*map(address_of, used)], address_of(result), (used, result))
        else:
            views, view = canonical(problem, taken), result.view(np.ndarray).transpose(problem.output_order)
            strides_of_each = (*[array.strides for array in views], view.strides)
            on_its_threads(first, self.call.elsewhere(strides_of_each).on, views, view)
        return result if result is out or (plain and out is None) else handed_over(result, first, out)

    def _taken(self, name: str, shape: tuple[int, ...], value: object) -> Array:
        array, fmt = arrays.take(value, self.op.name, name)
        if fmt is not self.problem.operand_format:  # T6
            sentence = f"{name} must be of {self.problem.operand_format}, the type it was compiled for; got {fmt}"
            refuse("T6", self.op.name, sentence)
        if array.shape != shape:  # D7
            refuse("D7", self.op.name, f"{name} must have the shape it was compiled for, {shape}; got {array.shape}")
        return array


@described
def compile(
    operator: str,
    *inputs: object,
    dtype: DType | None = None,
    accumulate: bool = False,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    **attributes: object,
) -> Compiled:
    """Compile a call of :func:`run` for arrays of given shapes and type, and return a callable.

    Pass inputs with the shapes, type and strides of later calls. The values of arrays are not read. The values of shape
    inputs cannot change later. The compiled call keeps the current settings of threads, accuracy and instruction set.

    The callable takes arrays of these shapes and this type, with any strides, and ``out``. The call is fastest if
    operands have the strides of ``inputs`` and ``out`` is row-major. The result has the same bits as the result of
    :func:`run`.

    Raises the errors of :func:`run`. Follows oneDNN's documentation of the named operator.

    >>> import numpy as np
    >>> src, weights = np.arange(6, dtype=np.float32).reshape(1, 6, 1), np.ones((3, 1, 1), np.float32)
    >>> forward = compile("Convolution", src, weights, strides=[1], dilations=[1])
    >>> out = np.empty((1, 4, 1), np.float32)
    >>> forward(src, weights, out=out) is out, out.ravel().tolist()
    (True, [3.0, 6.0, 9.0, 12.0])
    >>> forward(src + 1, weights).ravel().tolist()
    [6.0, 9.0, 12.0, 15.0]
    """
    check_options(operator, inputs, accumulate, threads)
    prepared = prepare(operator, inputs, attributes, dtype, accumulate).activated(activation).within(max_error)
    problem, views = prepared.problem, prepared.operands
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=2)
    taken, out = prepared.taken.values(), room(problem, None, {})
    choice, used = engines.choose(problem), count(threads)
    strides = (*[view.strides for view in views], prepared.canonical_output(out).strides)
    call = choice.computes.call(problem, strides, used)
    call.prepare()
    alike = all(array.dtype.isnative for array in taken)
    return Compiled(
        op=prepared.op,
        problem=problem,
        names=tuple(prepared.taken),
        shapes=tuple(array.shape for array in taken),
        choice=choice,
        threads=used,
        strides=[*(array.strides for array in taken), out.strides] if alike else [],
        call=call,
    )
