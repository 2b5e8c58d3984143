"""Reading and writing of benchdnn's problem descriptors: keys with numbers, such as ``ic64`` and ``kh3``.

The keys without an axis are ``g`` (groups, default 1), ``mb`` (batch, default 2), ``ic`` and ``oc`` (channels of input
and output). A key of an axis has two letters. The first letter is ``i`` (input), ``o`` (output), ``k`` (kernel), ``s``
(stride), ``p`` (left pad) or ``d`` (dilation, where 0 leaves no gaps). The second letter is ``d`` (depth), ``h``
(height) or ``w`` (width). Underscores are ignored. The key ``n`` is the last one, and the problem's name follows it.

A missing output extent is computed from the pad, and a missing pad from the output extent. An axis without input and
kernel takes missing values from the next outer axis. An axis is absent if all its values are benchdnn's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from convgrad.errors import NotationError
from convgrad.spec.geometry import effective_kernel, forward_extent, transposed_extent

_AXIS_LETTERS = "dhw"
_ABSENT = {"i": 0, "o": 0, "k": 0, "s": 1, "d": 0, "p": 0}
_TOKEN = re.compile(r"(mb|ic|oc|[ioksdp][dhw]|g)(\d{1,18})|(n)(.*)", re.DOTALL)


@dataclass(frozen=True)
class AxisSize:
    """The values of one axis of a descriptor, given or deduced. A dilation of 1 leaves no gaps between taps."""

    input: int
    output: int
    kernel: int
    stride: int
    pad_begin: int
    pad_end: int
    dilation: int


@dataclass(frozen=True)
class Descriptor:
    """A benchdnn problem with all values, given or deduced.

    In a deconvolution, ``input`` and ``output`` are those of the deconvolution, not of the underlying convolution.
    ``note`` is a warning about pads that the descriptor does not give, or "".
    """

    batch: int
    groups: int
    in_channels: int
    out_channels: int
    axes: tuple[AxisSize, ...]
    name: str = ""
    note: str = field(default="", compare=False)


def read_descriptor(text: str, transposed: bool = False, strict: bool = False) -> Descriptor:
    """Read a benchdnn descriptor, and compute the values that it omits.

    benchdnn accepts any given output extent: the right pad follows from the extent. If ``strict``, raise NotationError
    for a given extent whose right pad ``note`` would name, because such an extent is almost always a typo.

    >>> read_descriptor("g1_oc16oh56ow56_ic16ih28_kh1sh2ph0").axes[1]
    AxisSize(input=28, output=56, kernel=1, stride=2, pad_begin=0, pad_end=83, dilation=1)
    """
    numbers, name = _tokens(text)
    values_of = {axis: _values_of(numbers, axis) for axis in _AXIS_LETTERS}
    sizes = [(axis, values, _axis(values, axis, text, transposed)) for axis, values in _promoted(values_of, text)]
    for key in ("ic", "oc", "g"):
        if numbers.get(key, 1 if key == "g" else 0) < 1:
            raise NotationError(f"{key} must be given and positive; got {text!r:.100}")
    axes = tuple(size for *_, size in sizes)
    notes = []
    for at, (axis, values, size) in enumerate(sizes):
        note = "" if size in axes[:at] else _unwritten_pad(axis, values, size)  # once if axes are equal
        if note and strict and values.get("o"):
            pad = f"p{axis}{values['p']}" if "p" in values else "a pad of 0"
            e = effective_kernel(size.kernel, size.dilation)
            usual = _extent(size.input, e, size.stride, values.get("p", 0), transposed)
            hint = f"{pad} gives o{axis}{usual}. Correct o{axis}, or give shapes and pads_end instead of a descriptor"
            raise NotationError(f"o{axis}{size.output} must follow from the other keys: {note}; {hint}")
        notes.append(note)
    note = "; ".join(filter(None, notes))
    return Descriptor(numbers.get("mb", 2), numbers.get("g", 1), numbers["ic"], numbers["oc"], axes, name, note)


def _tokens(text: str) -> tuple[dict[str, int], str]:
    numbers: dict[str, int] = {}
    text = text.strip()
    at = 0  # an index, because slicing off every token would take quadratic time
    while at < len(text):
        if text[at] == "_":
            at += 1
            continue
        token = _TOKEN.match(text, at)
        if token is None:
            remainder, hint = text[at:], ""
            if re.match(r"(auto_pad|same|valid)", remainder):
                hint = ". The notation cannot express auto_pad: give the pads"
            rule = "a descriptor is keys with numbers, such as ic64 or kh3"
            raise NotationError(f"{rule}; cannot read {remainder!r:.100} in {text!r:.100}{hint}")
        if token[3]:
            return numbers, token[4].strip().strip('"')
        if token[1] in numbers:
            raise NotationError(f"each key may occur only once; got {token[1]} twice in {text!r:.100}")
        numbers[token[1]] = int(token[2])
        at = token.end()
    return numbers, ""


def _values_of(numbers: Mapping[str, int], axis: str) -> dict[str, int]:
    """Return the given values of an axis by key, or {} if all given values are benchdnn's defaults."""
    values = {key: numbers[key + axis] for key in _ABSENT if key + axis in numbers}
    return values if any(_ABSENT[key] != value for key, value in values.items()) else {}


def _promoted(values_of: Mapping[str, dict[str, int]], text: str) -> list[tuple[str, dict[str, int]]]:
    """Return the spatial axes and their values. An axis without i and k takes missing values from the outer one."""
    letters = [axis for axis in _AXIS_LETTERS if values_of[axis]]
    if not letters:
        raise NotationError(f"a problem has at least one spatial axis; got {text!r:.100}")
    first = _AXIS_LETTERS.index(letters[0])
    if first == 0 and len(letters) == 2:
        raise NotationError(f"a 3-D problem gives both h and w or neither; got {text!r:.100}")
    result: list[tuple[str, dict[str, int]]] = []
    for axis in _AXIS_LETTERS[first:]:
        own = values_of[axis]
        if result and not {"i", "k"} & own.keys():
            own = result[-1][1] | own
        result.append((axis, own))
    return result


def _axis(values: Mapping[str, int], axis: str, text: str, transposed: bool) -> AxisSize:
    kernel, stride, dilation = values.get("k", 0), values.get("s", 1), values.get("d", 0) + 1
    size, output, pad = values.get("i", 0), values.get("o"), values.get("p")
    for key, value in (("i", size), ("k", kernel), ("s", stride)):
        if value < 1:
            raise NotationError(f"{key}{axis} must be given and positive; got {text!r:.100}")
    e = effective_kernel(kernel, dilation)
    if output is None or output == 0:
        pad = pad or 0
        output = _extent(size, e, stride, pad, transposed)
        if output < 1:
            raise NotationError(f"o{axis} follows from the rest as {output}, but must be positive; got {text!r:.100}")
    large, small = (output, size) if transposed else (size, output)
    total = (small - 1) * stride - large + e
    if pad is None:
        pad = _truncated(total, 2)
    if pad < 0:
        raise NotationError(f"p{axis} follows from the rest as {pad}, but must not be negative; got {text!r:.100}")
    # A negative right pad only cuts off positions that no tap reads, so a pad of 0 describes the same problem.
    pad_end = max(0, total - pad)
    padding = large - transposed_extent(small, e, stride, pad + pad_end)
    if padding >= max(stride, dilation if transposed else 1):
        largest = transposed_extent(size, e, stride, pad, max(stride, dilation) - 1)
        legal = f"at most {largest}" if transposed else f"at least {forward_extent(size, e, stride, pad)}"
        raise NotationError(f"o{axis} must be {legal} by the other values; got {text!r:.100}")
    return AxisSize(size, output, kernel, stride, pad, pad_end, dilation)


def _extent(size: int, e: int, stride: int, pad: int, transposed: bool) -> int:
    """Return the output extent with ``pad`` at both ends."""
    return (size - 1) * stride + e - 2 * pad if transposed else _truncated(size - e + 2 * pad, stride) + 1


def _unwritten_pad(axis: str, values: Mapping[str, int], size: AxisSize) -> str:
    """Return a warning if the right pad is at least as long as the dilated kernel and differs from ``p``; else "".

    >>> read_descriptor("ic1ih9oc1oh99kh3ph1").note
    'ih9 and oh99 leave a pad of 91 at the end of h, which the descriptor does not give'
    """
    written = values.get("p") == size.pad_end
    if written or size.pad_end < effective_kernel(size.kernel, size.dilation):
        return ""
    extents = f"i{axis}{size.input} and o{axis}{size.output}"
    return f"{extents} leave a pad of {size.pad_end} at the end of {axis}, which the descriptor does not give"


def _truncated(number: int, by: int) -> int:
    """Divide and round towards zero, as benchdnn does to compute extents and pads."""
    return -(-number // by) if number < 0 else number // by


def write_descriptor(d: Descriptor, transposed: bool = False) -> str:
    """Return a descriptor as text. Raise NotationError if the notation cannot express it."""
    if len(d.axes) > len(_AXIS_LETTERS):
        raise NotationError(f"the notation has up to 3 spatial axes; got {len(d.axes)}")
    letters = _AXIS_LETTERS[-len(d.axes) :]
    if len(set(d.axes)) == 1:  # inner axes take all values from the outermost axis
        letters = letters[0]
    fields = (
        ("i", 1, "input"),
        ("o", 1, "output"),
        ("k", 1, "kernel"),
        ("s", 0, "stride"),
        ("d", 0, "dilation"),
        ("p", 1, "pad_begin"),
    )

    def all_axes(key: str, always: int, field: str) -> str:
        values = [getattr(a, field) - (key == "d") for a in d.axes]
        shown = always or any(v != (key == "s") for v in values)
        return "".join(f"{key}{letter}{v}" for letter, v in zip(letters, values, strict=False)) if shown else ""

    spatial = {key: all_axes(key, always, field) for key, always, field in fields}
    text = f"g{d.groups}" * (d.groups != 1) + f"mb{d.batch}"
    text += f"ic{d.in_channels}{spatial['i']}oc{d.out_channels}{spatial['o']}"
    text += spatial["k"] + spatial["s"] + spatial["d"] + spatial["p"] + (f'n"{d.name}"' if d.name else "")
    if read_descriptor(text, transposed) != d:
        raise NotationError(f"the notation deduces the right pad from the extents; it cannot express the pads of {d}")
    return text
