"""The spatial extents of a call: one shape rule per pass (forward, backward_data, backward_weights), and its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from convgrad.spec.geometry import (
    Axis,
    Conv,
    calculated_pads,
    convolution_pad_total,
    effective_kernel,
    forward_extent,
    split_pads,
    transposed_extent,
    transposed_pad_total,
)
from convgrad.spec.shapes import CanonicalShapes


@dataclass(frozen=True)
class _AxisRule:
    """The kernel, stride and dilation of one spatial axis of a call. Errors name this axis."""

    call: CanonicalShapes
    index: int
    kernel: int
    stride: int
    dilation: int

    @property
    def effective(self) -> int:
        return effective_kernel(self.kernel, self.dilation)

    def pads(self, same_total: int, total: int = 0) -> tuple[int, int]:
        """Return the pads (begin, end): zeros for auto_pad valid, ``same_total`` in two for same, else as given.

        Absent pads, which only some operators have, are calculated for the sum ``total``.
        """
        a = self.call.attributes
        if a.auto_pad == "none":
            begin, end = (None if pads is None else pads[self.index] for pads in (a.pads_begin, a.pads_end))
            return calculated_pads(begin, end, total)
        return (0, 0) if a.auto_pad == "valid" else split_pads(same_total, a.auto_pad)

    def pads_between(self, src: int, dst: int) -> tuple[int, int]:
        """Return the pads of a gradient from the extents of src and dst, which are both known."""
        e, s = self.effective, self.stride
        total = transposed_extent(dst, e, s, src)  # the smallest total with which a forward maps src to dst
        if not _is_formula(self.call):
            return self.pads(convolution_pad_total(src, e, s), total)
        return self.pads(max(total + self.output_padding(), 0))

    def output_padding(self) -> int:
        """Return the output padding of a data gradient, which must be below the stride; 0 if it was not given."""
        padding, s = self.call.attributes.output_padding, self.stride
        op = padding[self.index] if padding is not None else 0
        if op >= s:  # A9
            self.refuse("A9", f"output_padding must be less than the stride; got output_padding {op} and stride {s}")
        return op

    def axis(self, src: int, dst: int, pads: tuple[int, int]) -> Axis:
        return Axis(src, dst, self.kernel, self.stride, self.dilation, *pads)

    def refuse(self, rule: str, sentence: str) -> NoReturn:
        self.call.refuse(rule, f"on spatial axis {self.index} {sentence}")


def _axis_rules(call: CanonicalShapes) -> Iterable[_AxisRule]:
    a = call.attributes
    kernel = call.shapes["weights"][2:]
    return (_AxisRule(call, x, k, a.strides[x], a.dilations[x]) for x, k in enumerate(kernel))


def _same(call: CanonicalShapes) -> bool:
    return call.attributes.auto_pad.startswith("same")


def _is_formula(call: CanonicalShapes) -> bool:
    """Return whether pads are those of ConvolutionBackpropData-1 with auto_pad same: s(O - 1) + E - I + op."""
    return call.op.calculates_pads and call.op.solves_for == "src" and _same(call)


def _calculates(call: CanonicalShapes) -> bool:
    """Return whether absent pads are calculated."""
    a = call.attributes
    return a.auto_pad == "none" and (a.pads_begin is None or a.pads_end is None)


def _listed(values: Sequence[int]) -> str:
    """Return legal extents as text: all extents if they are at most 8, else the first two and the last."""
    if not values:
        return "none"
    if values[8:]:  # ``len`` raises an error for ranges of 2^63 and more
        return f"{values[0]}, {values[1]}, ... {values[-1]}"
    return ", ".join(map(str, values))


def _forward_extent(rule: _AxisRule, extent: int, padding: int, formula: str) -> int:
    """Return the output extent of a forward. Raise by rule G8 if it is below 1, except 0 for an empty input."""
    if extent < 1 and not (extent == 0 and padding == 0):  # G8
        name = rule.call.names[rule.call.op.output.tensor]
        rule.refuse("G8", f"the extent of {name} must be at least 1; got {formula} = {extent}")
    return extent


def _convolution(call: CanonicalShapes) -> tuple[Axis, ...]:
    """Return the axes of a convolution, with the dst extents O = floor((I + P - E)/s) + 1."""
    axes = []
    for rule, src in zip(_axis_rules(call), call.shapes["src"][2:], strict=True):
        e, s = rule.effective, rule.stride
        pads = rule.pads(convolution_pad_total(src, e, s))
        formula = f"floor((I + P - E)/s) + 1 = floor(({src} + {sum(pads)} - {e})/{s}) + 1"
        dst = _forward_extent(rule, forward_extent(src, e, s, sum(pads)), src, formula)
        axes.append(rule.axis(src, dst, pads))
    return tuple(axes)


def _fitting_pads(src: int, dst: int, rule: _AxisRule) -> str:
    """Return a hint: the sums of explicit pads with which a forward maps extent src to dst; "" if there are none."""
    minimum = transposed_extent(dst, rule.effective, rule.stride, src)
    sums = range(max(0, minimum), minimum + rule.stride) if dst else range(rule.effective - src)
    return f". pads_begin + pads_end that fit: {_listed(sums)}" if sums else ""


def _fitting_kernels(src: int, dst: int, rule: _AxisRule, pads: int) -> str:
    """Return, as text, the kernel extents with which a forward maps extent src to dst. ``pads`` is the axis's total."""
    d, padded = rule.dilation, src + pads
    if dst == 0:  # the kernel must exceed the padded src: E > I + P
        return f"{(padded - 1) // d + 2} or more"
    longest = padded - rule.stride * (dst - 1)
    shortest = -((1 - max(1, longest - rule.stride + 1)) // d) + 1
    if _calculates(rule.call):  # longer kernels have more pads
        return f"{shortest} or more"
    return _listed(range(shortest, (longest - 1) // d + 2))


def _backward_weights(call: CanonicalShapes) -> tuple[Axis, ...]:
    """Return the axes of a weight gradient. Raise by rule G6 unless a forward maps src's extents to those of diff_dst.

    If the kernel is larger than the padded src, diff_dst must be empty.
    """
    axes = []
    extents = zip(_axis_rules(call), call.shapes["src"][2:], call.shapes["dst"][2:], strict=True)
    for rule, src, dst in extents:
        e, s = rule.effective, rule.stride
        pads = rule.pads_between(src, dst)
        expected = max(0, forward_extent(src, e, s, sum(pads)))
        if dst != expected:  # G6
            fit = _fitting_pads(src, dst, rule) if call.attributes.auto_pad == "none" else ""
            fit += "" if _same(call) else f". Kernels that fit: {_fitting_kernels(src, dst, rule, sum(pads))}"
            rule.refuse(
                "G6",
                f"{call.names['dst']} extent must be floor((I + P - E)/s) + 1 ="
                f" floor(({src} + {sum(pads)} - {e})/{s}) + 1 = {expected}; got {dst}{fit}",
            )
        axes.append(rule.axis(src, dst, pads))
    return tuple(axes)


def _legal_sources(rule: _AxisRule, dst: int) -> range:
    """Return the extents of src that a forward maps to the given extent of dst. They are at most as many as s.

    If pads are calculated, these are the extents of the smallest pads.
    """
    e, s = rule.effective, rule.stride
    if _same(rule.call) and not _is_formula(rule.call):
        return range(max(0, s * (dst - 1) + 1), s * dst + 1)
    first = transposed_extent(dst, e, s, sum(rule.pads(0)))
    return range(0 if dst == 0 else max(0, first), first + s)


def _legal_extents(rule: _AxisRule, dst: int) -> str:
    """Return the legal extents of src as text."""
    legal = _legal_sources(rule, dst)
    more = (_is_formula(rule.call) or _calculates(rule.call)) and (legal.start > 0 or not legal)
    return _listed(legal) + ", or fewer with larger pads" * (more and legal.stop > 0)


def _backward_data(call: CanonicalShapes) -> tuple[Axis, ...]:
    """Return the axes of a data gradient from dst_shape, after checks, or with inferred extents I of src.

    I is s(O - 1) + E - P + op, or sO with auto_pad same. Raise by rule A8 if I cannot be inferred.
    """
    if "src" in call.shapes:
        return _backward_data_given(call)
    padding, same = call.attributes.output_padding, _same(call)
    axes = []
    for rule, dst in zip(_axis_rules(call), call.shapes["dst"][2:], strict=True):
        e, s = rule.effective, rule.stride
        if same and padding is None and e >= s:
            src, pads = s * dst, rule.pads(convolution_pad_total(s * dst, e, s))
        elif not same and (padding is not None or set(call.attributes.strides) == {1}):
            op, pads = rule.output_padding(), rule.pads(0)
            src = transposed_extent(dst, e, s, sum(pads), op)
            if src not in _legal_sources(rule, dst):  # G6
                rule.refuse(
                    "G6",
                    f"no {call.names['src']} extent s(O - 1) + E - P + op = {s}({dst} - 1) + {e} - {sum(pads)} + {op} ="
                    f" {src} has a forward of extent {dst}; legal extents: {_legal_extents(rule, dst)}",
                )
        else:  # A8
            for axis_rule in _axis_rules(call) if _is_formula(call) else ():
                axis_rule.output_padding()  # is used although the shape is given, too
            legal = "; ".join(
                f"axis {r.index}: {_legal_extents(r, o)}"
                for r, o in zip(_axis_rules(call), call.shapes["dst"][2:], strict=True)
            )
            name = next(port.name for port in call.op.operands if port.is_shape)
            call.refuse("A8", f"{name} must be given{_without_shape(call)}; legal extents by spatial axis: {legal}")
        axes.append(rule.axis(src, dst, pads))
    return tuple(axes)


def _without_shape(call: CanonicalShapes) -> str:
    """Return a hint about other attributes that would determine the shape of a data gradient's result."""
    if not _same(call):
        return ", or give output_padding"
    determined = all(rule.effective >= rule.stride for rule in _axis_rules(call))
    return ", or leave output_padding out" if determined else ", because E < s on an axis"


def _backward_data_given(call: CanonicalShapes) -> tuple[Axis, ...]:
    axes = []
    extents = zip(_axis_rules(call), call.shapes["src"][2:], call.shapes["dst"][2:], strict=True)
    for rule, src, dst in extents:
        e, s = rule.effective, rule.stride
        pads = rule.pads_between(src, dst)
        if dst != max(0, forward_extent(src, e, s, sum(pads))):  # G6
            rule.refuse("G6", _data_mismatch(rule, src, dst, sum(pads)))
        axes.append(rule.axis(src, dst, pads))
    return tuple(axes)


def ignored_output_padding(call: CanonicalShapes, conv: Conv) -> str | None:
    """Return a note if a data gradient's output_padding is ignored because it contradicts the given shape; or None."""
    padding = call.attributes.output_padding
    if padding is None or (call.op.solves_for, call.op.transposed) != ("src", False):
        return None
    for index, (axis, op) in enumerate(zip(conv.axes, padding, strict=True)):
        pads = axis.pad_begin + axis.pad_end
        would_be = transposed_extent(axis.dst, axis.effective_kernel, axis.stride, pads, op)
        if would_be != axis.src:
            if _is_formula(call):
                return (
                    f"{call.op.name}: on spatial axis {index}, output_padding {op} has no effect, because"
                    f" {call.names['src']} {axis.src} exceeds s(O - 1) + E + op = {would_be}, so that the pads are 0"
                )
            return (
                f"{call.op.name}: output_padding {list(padding)} is ignored, because {call.names['src']} is given;"
                f" on spatial axis {index} it would make {would_be}, not {axis.src}"
            )
    return None


def _data_mismatch(rule: _AxisRule, src: int, dst: int, pads: int) -> str:
    e, s = rule.effective, rule.stride
    sentence = (
        f"{rule.call.names['src']} extent I must satisfy floor((I + P - E)/s) + 1 = O, here"
        f" floor(({src} + {pads} - {e})/{s}) + 1 = {forward_extent(src, e, s, pads)}; got O = {dst};"
        f" legal extents: {_legal_extents(rule, dst)}"
    )
    total = transposed_extent(dst, e, s, src)
    fitting = range(e - src) if dst == 0 else range(max(0, total), total + s)
    if rule.call.attributes.auto_pad == "none" and fitting:
        sentence += f". pads_begin + pads_end that fit: {_listed(fitting)}"
    return sentence


def _transposed_pads(rule: _AxisRule) -> tuple[int, int]:
    return rule.pads(transposed_pad_total(rule.effective, rule.stride))


def _transposed_padding(rule: _AxisRule) -> int | None:
    """Return the axis's output_padding, checked to be below max(stride, dilation); None if it was not given."""
    padding = rule.call.attributes.output_padding
    if padding is None:
        return None
    limit, op = max(rule.stride, rule.dilation), padding[rule.index]
    if op >= limit:  # A9
        rule.refuse("A9", f"output_padding must be less than max(stride, dilation) = {limit}; got {op}")
    return op


def _transpose(call: CanonicalShapes) -> tuple[Axis, ...]:
    """Return the axes of a transposed convolution: L = s(l - 1) + E - P + op. op is added with every auto_pad."""
    axes = []
    for rule, small in zip(_axis_rules(call), call.shapes["dst"][2:], strict=True):
        e, s, op = rule.effective, rule.stride, _transposed_padding(rule) or 0
        pads = _transposed_pads(rule)
        formula = f"s(l - 1) + E - P + op = {s}({small} - 1) + {e} - {sum(pads)} + {op}"
        large = _forward_extent(rule, transposed_extent(small, e, s, sum(pads), op), small, formula)
        axes.append(rule.axis(large, small, pads))
    return tuple(axes)


def _transpose_backward_data(call: CanonicalShapes) -> tuple[Axis, ...]:
    """Return the axes of a transposed data gradient: l = floor((L + P - E)/s) + 1.

    With output_padding (op), L must be s(l - 1) + E - P + op.
    """
    axes = []
    for rule, large in zip(_axis_rules(call), call.shapes["src"][2:], strict=True):
        e, s, op = rule.effective, rule.stride, _transposed_padding(rule)
        pads = _transposed_pads(rule)
        small = forward_extent(large - (op or 0), e, s, sum(pads))
        if op is not None and transposed_extent(small, e, s, sum(pads), op) != large:  # G7
            below, shortest = (transposed_extent(n, e, s, sum(pads), op) for n in (small, 0))
            shortest = max(shortest, shortest % s)  # no extent is negative
            near = [extent for extent in (below, below + s) if extent >= shortest] or [shortest]
            rule.refuse("G7", _transposed_mismatch(rule, large, "l", sum(pads), op, near))
        if op is None or small < 0:
            formula = f"floor((L + P - E)/s) + 1 = floor(({large} + {sum(pads)} - {e})/{s}) + 1"
            small = _forward_extent(rule, small, large, formula)
        axes.append(rule.axis(large, small, pads))
    return tuple(axes)


def _transpose_backward_weights(call: CanonicalShapes) -> tuple[Axis, ...]:
    """Return the axes of a transposed weight gradient, or raise by rule G7.

    The difference L - (s(l - 1) + E - P) must be at least 0 and below max(s, d). With output_padding (op), the
    difference must be op.
    """
    axes = []
    extents = zip(_axis_rules(call), call.shapes["src"][2:], call.shapes["dst"][2:], strict=True)
    for rule, large, small in extents:
        e, s, op = rule.effective, rule.stride, _transposed_padding(rule)
        pads = _transposed_pads(rule)
        paddings = range(max(s, rule.dilation)) if op is None else range(op, op + 1)
        first, stop = (transposed_extent(small, e, s, sum(pads), op) for op in (paddings.start, paddings.stop))
        legal = range(max(0, first), stop)
        if large not in legal:  # G7
            rule.refuse("G7", _transposed_mismatch(rule, large, str(small), sum(pads), op, legal))
        axes.append(rule.axis(large, small, pads))
    return tuple(axes)


def _transposed_mismatch(
    rule: _AxisRule, large: int, small: str, pads: int, op: int | None, legal: Sequence[int]
) -> str:
    e, s = rule.effective, rule.stride
    same = f", P = max(E - s, 0) = {pads} by auto_pad" if _same(rule.call) else ""
    padding = f"op, 0 <= op < max(s, d) = {max(s, rule.dilation)}" if op is None else str(op)
    return (
        f"{rule.call.names['src']} extent must be L = s(l - 1) + E - P + op ="
        f" {s}({small} - 1) + {e} - {pads} + {padding}{same}; got {large}; legal extents: {_listed(legal)}"
    )


AXES: Mapping[tuple[str, bool], Callable[[CanonicalShapes], tuple[Axis, ...]]] = {
    ("dst", False): _convolution,
    ("src", False): _backward_data,
    ("weights", False): _backward_weights,
    ("src", True): _transpose,
    ("dst", True): _transpose_backward_data,
    ("weights", True): _transpose_backward_weights,
}
