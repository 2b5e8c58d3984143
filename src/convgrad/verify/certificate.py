"""The certificate of one output element: its terms, exact value and bound, and the error of a given result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from convgrad import arrays, formats
from convgrad.array_types import Array
from convgrad.errors import InvalidShapeError, UnsupportedError
from convgrad.float_environment import in_default_environment
from convgrad.functional.call import Prepared
from convgrad.spec.geometry import Channels, Conv
from convgrad.spec.problem import Problem
from convgrad.verify.check import as_result
from convgrad.verify.check_certificate import (
    Certificate,
    StatedGeometry,
    StatedOperand,
    Statements,
    conclusions,
)
from convgrad.verify.declared import SUM, Declared
from convgrad.verify.foreign import resolved
from convgrad.verify.terms import terms_of


@in_default_environment
def certificate(
    prepared: Prepared, index: Sequence[int], got: object, declared: Declared, old: Array | None = None
) -> Certificate:
    """Return a JSON object that certifies one element of a result ``got``, at ``index`` in the caller's layout.

    The terms are the products x y and the added values (bias and old value). The exact value S is the sum of the terms,
    and A is the sum of their magnitudes. m is the number of terms. h is the declared rounding depth, but at most the
    number of terms that are not products of 0:

        bound = gamma_h A + m tiny/2 (1 + gamma_h),  gamma_h = h u / (1 - h u)

    u is the unit roundoff and tiny the smallest number of the format of sums. The bound is 0 if all terms are integers
    and A is at most 1/u. A result is inside if it is between S - bound and S + bound, both rounded to the result's
    type. Numbers are hexadecimal floats, bits, or fractions, so no digit is lost. ``old``, in the caller's layout, is
    the array to which the result was added. ``check_certificate.py``, which imports nothing from convgrad, checks a
    certificate.

    | key                           | value                                                                      |
    |-------------------------------|----------------------------------------------------------------------------|
    | operator, attributes, index   | the call, and the element of its result                                    |
    | operands                      | by name, also old: type, shape, SHA-256 of the bytes in C order, tensor    |
    |                               | of the underlying convolution, order of its axes                           |
    | geometry                      | the underlying convolution                                                 |
    | terms                         | x and y of the products; added: bias, the old value                        |
    | declared                      | the format of sums; height: a number, blocks of an order, or null          |
    | output_type, candidate        | the result's type, the bits of its element                                 |
    | conclusions                   | exact, rounded, magnitude, bound, candidate, error, share (error divided   |
    |                               | by bound + last rounding), verdict: inside, beyond, undecided              |

    Raises InvalidShapeError if no element has the index, UnsupportedError if the declared arithmetic is not a sum.

    >>> from convgrad.functional.call import prepare
    >>> from convgrad.verify.declared import declared
    >>> ones, attributes = np.ones((1, 3, 1), np.float32), {"strides": [1], "dilations": [1]}
    >>> call = prepare("Convolution", (ones, np.full((2, 1, 1), 0.1, np.float32)), attributes)
    >>> how = declared("Convolution", call.problem.operand_format)
    >>> document = certificate(call, (0, 0, 0), np.full((1, 2, 1), 0.2, np.float32), how)
    >>> document["terms"]["y"], document["conclusions"]["exact"], document["conclusions"]["verdict"]
    (['0x1.99999a0000000p-4', '0x1.99999a0000000p-4'], '13421773/67108864', 'inside')
    """
    operator, problem = prepared.op.name, prepared.problem
    if declared.algorithm != SUM:
        wanted = "a certificate is of a sum of products, one term after the other in some order"
        raise UnsupportedError(f"{operator}: {wanted}; declared is {declared.algorithm}")
    if problem.algorithm:
        raise UnsupportedError(
            f"{operator}: a certificate is of a direct sum; this result is by tiles of {problem.algorithm}"
        )
    array, fmt = as_result(got, problem)
    place = tuple(map(int, index))
    if len(place) != array.ndim or not all(0 <= at < extent for at, extent in zip(place, array.shape, strict=True)):
        raise InvalidShapeError(f"{operator}: index must be inside the shape {array.shape} of the result; got {place}")
    canonical = tuple(place[axis] for axis in problem.output_order)
    before = None if old is None else prepared.canonical_output(as_result(old, problem, "old")[0])
    terms = terms_of(problem, prepared.operands, canonical, before)
    tensors = zip(prepared.taken.items(), problem.operands, problem.operand_orders, strict=True)
    operands = {name: _described(value, tensor, order) for (name, value), tensor, order in tensors}
    if before is not None:
        operands["old"] = _described(before.transpose(np.argsort(problem.output_order)), "old", problem.output_order)
    bits = np.asarray(array[place]).reshape(1).view(f"u{array.itemsize}")[0]
    statements: Statements = {
        "operator": operator,
        "attributes": {**_attributes(prepared), **resolved(prepared)},
        "operands": operands,
        "geometry": _geometry(problem),
        "output_type": fmt.name,
        "index": list(place),
        "declared": {
            "accumulation": declared.accumulation.name,
            "height": list(declared.blocks) if declared.blocks else declared.height,
        },
        "terms": {"x": _hex(terms.x), "y": _hex(terms.y), "added": [float(value).hex() for value in terms.added]},
        "candidate": {"bits": f"{int(bits):#0{2 + 2 * array.itemsize}x}"},
    }
    return {**statements, "conclusions": conclusions(statements)}


def _attributes(prepared: Prepared) -> dict[str, object]:
    values = {a.name: getattr(prepared.attributes, a.means) for a in prepared.op.attributes}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v is not None}


def _described(array: Array, tensor: str, order: Sequence[int]) -> StatedOperand:
    fmt = formats.of_dtype(array.dtype)
    assert fmt is not None
    digest = hashlib.sha256(arrays.native(array, fmt).tobytes()).hexdigest()
    return {"type": fmt.name, "shape": list(array.shape), "sha256": digest, "tensor": tensor, "order": list(order)}


def _geometry(problem: Problem) -> StatedGeometry:
    conv, axes = problem.geometry, []
    groups, channels = 1, (conv.channels,) * 2 if isinstance(conv, Channels) else (conv.dst_channels, conv.src_channels)
    if isinstance(conv, Conv):
        groups = conv.groups
        for a in conv.axes:
            steps = {"stride": a.stride, "dilation": a.dilation, "pad_begin": a.pad_begin}
            axes.append({"src": a.src, "dst": a.dst, "weights": a.kernel, **steps})
    order = list(problem.output_order)
    return {"solves_for": problem.solves_for, "order": order, "groups": groups, "channels": [*channels], "axes": axes}


def _hex(values: NDArray[np.float64]) -> list[str]:
    return [value.hex() for value in values.ravel().tolist()]
