"""Functions of C libraries, called through ctypes: a signature declares their arguments in order."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from convgrad.array_types import Array
from convgrad.errors import NotationError, UnsupportedError
from convgrad.formats import FORMATS
from convgrad.functional.call import Prepared, prepare
from convgrad.spec.geometry import Conv, effective_kernel, forward_extent, transposed_extent
from convgrad.spec.layouts import DATA, axis_order, from_canonical
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS
from convgrad.spec.problem import canonical_shape
from convgrad.verify.copies import BETWEEN

OUT = "out"
ARRAYS = ("src", "weights", "diff_dst", "bias", OUT)
INTEGERS: Mapping[str, type[ctypes.c_int32] | type[ctypes.c_int64]] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
}
AXES = ("D", "H", "W")
_SIZE = re.compile(r"([NGCO]|[DHW]|[OKSDPQ][DHW]|[KSPQ])(?:=(\d{1,18}))?")
# The values that a function may assume if its signature does not have their names.
ASSUMED = {"N": 1, "G": 1, "C": 1, "O": 1, "K": 1, "S": 1, "D": 1, "P": 0}
_LIBRARY = re.compile(r".*\.(so(\.\d+)*|dylib|dll)", re.IGNORECASE)


def is_library(name: str) -> bool:
    """Return whether the name of a function is ``library:function``.

    >>> is_library("build/libconv.so.2:backward"), is_library("mine:run")
    (True, False)
    """
    return _LIBRARY.fullmatch(name.rpartition(":")[0]) is not None


@dataclass(frozen=True)
class Signature:
    """The declared arguments: names of arrays and sizes, and the type of each size (None for an array).

    ``fixed`` are sizes that the function assumes and does not get. ``type`` and ``data_format`` are "" for any.
    """

    transposed: bool
    type: str
    data_format: str
    weights_format: str
    arguments: tuple[tuple[str, object], ...]
    fixed: Mapping[str, int]


def read_signature(text: str) -> Signature:
    """Read a signature: [deconv] [TYPE] [DATA_FORMAT[:WEIGHTS_FORMAT]], arrays, sizes, and ``int32`` before sizes.

    >>> [name for name, _ in read_signature("f32 NXC src diff_dst out N H W C O K int32 SH PH=1").arguments]
    ['src', 'diff_dst', 'out', 'N', 'H', 'W', 'C', 'O', 'K', 'SH']
    """
    words, integer = text.split(), INTEGERS["int64"]
    transposed = words[:1] == ["deconv"]
    choices = TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS
    kind, data, weights = "", "", ""
    arguments: list[tuple[str, object]] = []
    fixed: dict[str, int] = {}
    for word in words[transposed:]:
        layout, _, other = word.partition(":")
        size = _SIZE.fullmatch(word)
        if word in ARRAYS:
            arguments.append((word, None))
        elif size and size[2]:
            fixed[size[1]] = int(size[2])
        elif size:
            arguments.append((word, integer))
        elif word in INTEGERS:
            integer = INTEGERS[word]
        elif word in FORMATS:
            kind = word
        elif layout in DATA and (other or choices[0]) in choices:
            data, weights = layout, other or choices[layout == "NCX"]
        else:
            known = f"{', '.join(ARRAYS)}, sizes such as N, C, O, H, OH, KH, SH, DH, PH, QH, int32, a type or a layout"
            raise NotationError(f"a signature has the words {known}; got {word!r:.80}")
    names = [name for name, _ in arguments]
    if names.count(OUT) != 1 or any(names.count(name) > 1 for name in ARRAYS):
        raise NotationError(f"a signature must have {OUT} once, and each operand at most once; got {text!r:.200}")
    if not {*ARRAYS[:-1]} & {*names}:
        raise NotationError(f"a signature must have an operand, such as {ARRAYS[0]}; got {text!r:.200}")
    return Signature(transposed, kind, data, weights, tuple(arguments), fixed)


class UnservedCallError(NotImplementedError):
    """A signature excludes a call."""


class CFunction:
    """A function of a C library, which is called as ``convgrad.run`` is."""

    def __init__(self, name: str, signature: str) -> None:
        """Load ``library:function``. Raise NotationError or UnsupportedError if that is impossible."""
        self._signature = read_signature(signature)
        path, _, function = name.rpartition(":")
        try:
            self._function = getattr(ctypes.CDLL(os.path.abspath(path)), function)
        except (OSError, AttributeError) as error:
            raise UnsupportedError(f"{name} cannot be loaded: {error}") from error
        self._function.argtypes = [integer or ctypes.c_void_p for _, integer in self._signature.arguments]
        self._function.restype = None

    def __call__(self, operator: str, *inputs: object, dtype: object = None, **attributes: object) -> Array:
        """Return the array that the function writes. Raise UnservedCallError if the signature excludes the call."""
        prepared = prepare(operator, inputs, attributes, dtype)
        problem = prepared.problem
        values = _sizes(prepared)
        for why in _reasons(self._signature, prepared, values):
            raise UnservedCallError(why)
        arrays = {}
        for name, tensor, array in zip(prepared.taken, problem.operands, prepared.operands, strict=True):
            layout = self._layout(tensor)
            operand = _laid(array, layout) if layout else prepared.taken[name]
            arrays[name] = np.ascontiguousarray(operand, problem.operand_format.dtype)  # in native byte order
        layout = self._layout(problem.output) or problem.layouts[-1]
        shape = from_canonical(canonical_shape(problem.geometry, problem.output), layout)
        out = np.empty(shape, problem.output_format.dtype)
        out.view(np.uint8).fill(BETWEEN)  # an element that is not written is NaN
        arrays[OUT] = out
        self._function(*(arrays[n].ctypes.data if n in arrays else values[n] for n, _ in self._signature.arguments))
        return _laid(out.transpose(axis_order(layout, out.ndim)), problem.layouts[-1])

    def _layout(self, tensor: str) -> str:
        """Return the layout that the signature declares for a tensor, or "" for the layout of the case."""
        if tensor == "bias":
            return ""
        return self._signature.weights_format if tensor == "weights" else self._signature.data_format


def _laid(canonical: Array, layout: str) -> Array:
    """Return a view in ``layout`` of an array whose axes are in canonical order."""
    return canonical.transpose(from_canonical(range(canonical.ndim), layout))


def _sizes(prepared: Prepared) -> dict[str, int]:
    """Return the sizes of a call by the names that signatures use; K, S, P and Q only if they are equal on all axes."""
    conv = prepared.problem.geometry
    if not isinstance(conv, Conv) or len(conv.axes) > len(AXES):
        return {}
    inner, outer = ("dst", "src") if prepared.op.transposed else ("src", "dst")
    sizes = {"N": conv.batch, "G": conv.groups}
    sizes |= {"C": getattr(conv, f"{inner}_channels"), "O": getattr(conv, f"{outer}_channels")}
    for letter, axis in zip(AXES[-len(conv.axes) :], conv.axes, strict=True):
        sizes |= {letter: getattr(axis, inner), f"O{letter}": getattr(axis, outer)}
        attributes = {"K": axis.kernel, "S": axis.stride, "D": axis.dilation, "P": axis.pad_begin, "Q": axis.pad_end}
        sizes |= {f"{key}{letter}": value for key, value in attributes.items()}
    for key in "KSPQ":
        values = {value for name, value in sizes.items() if len(name) == 2 and name[0] == key}
        sizes |= dict.fromkeys([key], *values) if len(values) == 1 else {}
    return sizes


def _reasons(signature: Signature, prepared: Prepared, values: Mapping[str, int]) -> Iterator[str]:
    """Yield the reasons why a function with this signature does not serve a call."""
    problem, arguments, fixed = prepared.problem, dict(signature.arguments), signature.fixed
    operands = [name for name in ARRAYS if name in arguments and name != OUT]
    if not values:
        yield f"a signature is for a convolution on at most {len(AXES)} axes, and the case is another operator"
    if prepared.op.transposed != signature.transposed or set(operands) != set(prepared.taken):
        pairs = ((operands, signature.transposed), (prepared.taken, prepared.op.transposed))
        declared, own = (f"{', '.join(names)}{' of deconv' * transposed}" for names, transposed in pairs)
        yield f"the signature is for {declared}, and the case has {own}"
    if signature.type not in ("", problem.operand_format.name):
        yield f"the signature is for {signature.type}, and the case has {problem.operand_format}"
    named = (arguments.keys() | fixed.keys()) - {*ARRAYS}
    for name in sorted(named):
        if name not in values:
            yield f"the signature has {name}, and the case has no single {name}"
        elif fixed.get(name, values[name]) != values[name]:
            yield f"the signature has {name}={fixed[name]}, and the case has {values[name]}"
        elif arguments.get(name) is ctypes.c_int32 and values[name] >= 1 << 31:
            yield f"{name} of the case, {values[name]}, exceeds int32"
    for name, value in values.items():
        is_needed = name in "NGCO" or (len(name) == 2 and name[0] in "KSDP")
        is_implied = (name in "CO" and "G" in named) or (name[0] == "K" and {name[1:], f"O{name[1:]}"} <= named)
        if is_needed and value != ASSUMED[name[0]] and not is_implied and not {name, name[0]} & (named - {"D"}):
            yield f"the signature has no {name}, which is {value} in the case"
        if name in AXES and not any(other.endswith(name) for other in named):
            yield f"the signature has no size of the axis {name}"
        if name in AXES and not {f"O{name}", f"Q{name}", "Q"} & named and not _is_implied(values, name, signature):
            yield f"the signature has neither O{name} nor Q{name}, and equal pads give another extent"


def _is_implied(values: Mapping[str, int], letter: str, signature: Signature) -> bool:
    """Return whether the output extent of an axis is that of equal pads at both ends."""
    e = effective_kernel(values[f"K{letter}"], values[f"D{letter}"])
    extent = transposed_extent if signature.transposed else forward_extent
    pads = 2 * values[f"P{letter}"]
    return extent(values[letter], e, values[f"S{letter}"], pads) == values[f"O{letter}"]
