"""The legal values that errors list are exactly the legal ones, found by counting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import pytest

from convgrad import InvalidAttributeError, InvalidShapeError, infer_shapes
from tests.spec.rule_breaks import CONV, DATA, OLD_DATA, T_DATA, T_SRC, T_WEIGHTS, TRANSPOSE, WEIGHTS, W
from tests.support.helpers import peak_bytes
from tests.support.tiers import tiers

STRIDES, DILATIONS, KERNELS = range(1, 4), range(1, 4), range(1, 4)
PADS: list[dict[str, Any]] = [
    {"pads_begin": [0], "pads_end": [0]},
    {"pads_begin": [1], "pads_end": [2]},
    {"auto_pad": "valid", "pads_end": [2]},
    {"auto_pad": "same_upper"},
    {"auto_pad": "same_lower"},
]
SHARES = 12  # of the windows
shares = tiers("pads, share", PADS, range(SHARES), every=11)


@dataclass(frozen=True)
class Window:
    """A kernel that steps over an extent, by counting: no formula of the library's."""

    stride: int
    dilation: int
    kernel: int
    pads: dict[str, Any] = field(hash=False)

    @property
    def attributes(self) -> dict[str, Any]:
        return {"strides": [self.stride], "dilations": [self.dilation], **self.pads}

    @property
    def span(self) -> int:
        return len(range(0, self.dilation * self.kernel, self.dilation)[:-1]) * self.dilation + 1

    @property
    def same(self) -> bool:
        return str(self.pads.get("auto_pad")).startswith("same")

    @property
    def total(self) -> int:
        """Explicit pads; what a transposed operator makes of same."""
        if self.same:
            return max(self.span - self.stride, 0)
        return 0 if "auto_pad" in self.pads else int(self.pads["pads_begin"][0] + self.pads["pads_end"][0])

    def positions(self, src: int) -> int:
        """Count where the kernel fits into a padded source; same: the strides begun in it."""
        if self.same:
            return len(range(0, src, self.stride))
        return len(range(0, src + self.total - self.span + 1, self.stride))

    def large(self, small: int, padding: int = 0) -> int:
        """Return what a transposed operator makes of ``small``: its last tap's position, plus the rest."""
        return self.stride * small - self.stride + self.span - self.total + padding


WINDOWS = list(product(STRIDES, DILATIONS, KERNELS))


def windows(pads: dict[str, Any], share: int) -> Iterable[Window]:
    return (Window(*numbers, pads) for numbers in WINDOWS[share::SHARES])


def refusal(operator: str, *shapes: Any, **attributes: Any) -> str | None:
    """Return why a call is refused, or None."""
    try:
        infer_shapes(operator, *shapes, **attributes)
    except (InvalidShapeError, InvalidAttributeError) as error:
        return str(error)
    return None


def assert_listed(call: Callable[[int], str | None], refused: Iterable[int], legal: list[int]) -> int:
    """Assert that each refusal lists the legal extents; return how many there are."""
    messages = [str(call(n)) for n in refused]
    assert all(listed(message, "legal extents: ") == legal for message in messages), (legal, messages)
    return len(messages)


def accepted(candidates: Iterable[int], call: Callable[[int], str | None]) -> list[int]:
    return [n for n in candidates if call(n) is None]


def listed(message: str, label: str, stop: int = 0) -> list[int]:
    """Read the numbers after a label: "none", "3, 4", "3, 4, ... 20", or "3 or more", which goes to ``stop``."""
    text = re.search(re.escape(label) + r"(.*?)(?:;|\. | \[)", message)
    assert text, message
    numbers = [int(n) for n in re.findall(r"-?\d+", text[1])]
    if "or more" in text[1]:
        return list(range(numbers[0], stop))
    return list(range(numbers[0], numbers[-1] + 1)) if "..." in text[1] else numbers


@shares
def test_g8_convolution_counts_positions(pads: dict[str, Any], share: int) -> None:
    for window, src in product(windows(pads, share), range(9)):
        got = refusal(CONV, (1, src, 1), (window.kernel, 1, 1), **window.attributes)
        count = window.positions(src)
        if count:
            assert infer_shapes(CONV, (1, src, 1), (window.kernel, 1, 1), **window.attributes) == (1, count, 1)
        else:
            assert (got is None) == (src == 0 and (window.same or src + window.total - window.span >= -window.stride))


@pytest.mark.every(2)
@shares
def test_g6_data_gradient_lists_its_legal_extents(pads: dict[str, Any], share: int) -> None:
    refused = 0
    for window, dst in product(windows(pads, share), range(4)):

        def call(src: int, window: Window = window, dst: int = dst) -> str | None:
            return refusal(DATA, (1, dst, 1), (window.kernel, 1, 1), (1, src, 1), **window.attributes)

        legal = accepted(range(24), call)
        assert legal == [src for src in range(24) if window.positions(src) == dst], (window, dst)
        refused += assert_listed(call, {*range(24)} - {*legal}, legal)
    assert refused > 1000 / SHARES


@tiers("pads, share", PADS[:2], range(SHARES), every=14)
def test_g6_data_gradient_lists_the_pads_that_fit(pads: dict[str, Any], share: int) -> None:
    for window, dst, src in product(windows(pads, share), range(4), range(0, 16, 3)):
        dy, w, shape = (1, dst, 1), (window.kernel, 1, 1), (1, src, 1)
        message = refusal(DATA, dy, w, shape, **window.attributes)
        if message is None:
            continue
        explicit = {"strides": [window.stride], "dilations": [window.dilation]}
        fit = [t for t in range(24) if refusal(DATA, dy, w, shape, pads_begin=[t], **explicit) is None]
        assert (listed(message, "pads_begin + pads_end that fit: ") if "pads" in message else []) == fit, message


@shares
def test_a8_data_gradient_without_a_shape_lists_or_infers(pads: dict[str, Any], share: int) -> None:
    """It is refused just where neither output_padding, nor auto_pad same, nor stride 1 makes the extent known."""
    for window, dst, padding in product(windows(pads, share), range(1, 4), [None, [0]]):
        dy, w = (1, dst, 1), (window.kernel, 1, 1)
        attributes = window.attributes | ({} if padding is None else {"output_padding": padding})
        message = refusal(DATA, dy, w, **attributes)
        known = padding is None and window.span >= window.stride
        known = known if window.same else padding is not None or window.stride == 1
        legal = [src for src in range(24) if window.positions(src) == dst]
        if not known:
            assert message
            assert message.endswith("[A8]"), message
            assert listed(message, "axis 0: ") == legal, message
        elif message:
            assert message.endswith("[G6]"), message
            assert listed(message, "legal extents: ") == legal, message
            assert min(legal, default=1) > window.large(dst)
        else:
            src = infer_shapes(DATA, dy, w, **attributes)[1]
            assert src == (window.stride * dst if window.same else window.large(dst))
            assert src in legal


@pytest.mark.parametrize("stride", STRIDES)
def test_a8_is_said_only_if_a_shape_mends_the_call(stride: int) -> None:
    """ConvolutionBackpropData-1 reads output_padding together with a shape, if auto_pad is same."""
    for kernel, dst, padding in product(KERNELS, range(4), range(4)):
        attributes = {"strides": [stride], "dilations": [1], "auto_pad": "same_upper", "output_padding": [padding]}
        message = str(refusal(OLD_DATA, (1, dst, 1), (kernel, 1, 1), **attributes))
        assert message.endswith("[A8]" if padding < stride else "[A9]"), message
        for src in listed(message, "axis 0: ") if "[A8]" in message else ():
            assert refusal(OLD_DATA, (1, dst, 1), (kernel, 1, 1), (1, src, 1), **attributes) is None, message


@pytest.mark.parametrize("operator", [DATA, OLD_DATA])
def test_a8_names_another_way_only_if_it_mends_the_call(operator: str) -> None:
    """Output padding is left out on all axes or on none."""
    for kernel, strides in product(product(KERNELS, KERNELS), product(STRIDES, STRIDES)):
        shapes, attributes = ((1, 2, 2, 1), (*kernel, 1, 1)), {"strides": [*strides], "auto_pad": "same_lower"}
        message = str(refusal(operator, *shapes, **attributes, output_padding=[0, 0]))
        assert message.endswith("[A8]"), message
        assert ("leave output_padding out" in message) == (refusal(operator, *shapes, **attributes) is None), message
        explicit = {"strides": [*strides], "dilations": [1, 1]}
        message = str(refusal(operator, *shapes, **explicit))
        padded = refusal(operator, *shapes, **explicit, output_padding=[0, 0])
        assert message == "None" or ("give output_padding" in message and "[A8]" not in str(padded)), message


@shares
def test_g6_weight_gradient_accepts_what_the_forward_makes(pads: dict[str, Any], share: int) -> None:
    for window, src in product(windows(pads, share), range(8)):
        call = [
            refusal(WEIGHTS, (1, src, 1), (1, dst, 1), (window.kernel, 1, 1), **window.attributes) for dst in range(12)
        ]
        assert [dst for dst, message in enumerate(call) if message is None] == [window.positions(src)]
        for dst, message in enumerate(call):
            assert message is None or f"= {window.positions(src)}; got {dst}" in message


@tiers("pads", PADS[:3], every=2)
def test_g6_weight_gradient_lists_the_kernels_that_fit(pads: dict[str, Any]) -> None:
    """All that fit: none, a few, or without an end for an empty diff_dst."""
    for stride, dilation, src, dst in product(STRIDES, DILATIONS, range(0, 9, 2), range(5)):
        fit, messages = [], []
        for kernel in range(1, 16):
            window = Window(stride, dilation, kernel, pads)
            message = refusal(WEIGHTS, (1, src, 1), (1, dst, 1), (kernel, 1, 1), **window.attributes)
            assert (message is None) == (window.positions(src) == dst)
            fit += [kernel] if message is None else []
            messages += [message] if message else []
        for message in messages:
            assert listed(message, "Kernels that fit: ", 16) == fit, message
            assert "auto_pad" not in pads or "pads_begin" not in message, "pads would be ignored"


@pytest.mark.every(5)
@shares
def test_g7_transposed_weight_gradient_lists_its_legal_extents(pads: dict[str, Any], share: int) -> None:
    for window, small, padding in product(windows(pads, share), range(4), [None, 0, 1]):
        limit = max(window.stride, window.dilation)
        if padding is not None and padding >= limit:
            continue
        attributes = window.attributes | ({} if padding is None else {"output_padding": [padding]})

        def call(large: int, window: Window = window, small: int = small, given: Any = attributes) -> str | None:
            return refusal(T_WEIGHTS, (1, small, 1), (1, large, 1), (window.kernel, 1, 1), **given)

        legal = accepted(range(24), call)
        made = [window.large(small, p) for p in (range(limit) if padding is None else [padding])]
        assert legal == [n for n in made if n >= 0], (window, small, padding)
        assert_listed(call, {*range(0, 24, 5)} - {*legal}, legal)


@shares
def test_g7_transposed_data_gradient_lists_the_nearest_legal_extents(pads: dict[str, Any], share: int) -> None:
    """With output_padding: exactly what the forward makes, the nearest below and above being listed."""
    for window, padding in product(windows(pads, share), [0, 1]):
        if padding >= max(window.stride, window.dilation):
            continue

        def call(large: int, window: Window = window, padding: int = padding) -> str | None:
            return refusal(T_DATA, (1, large, 1), (window.kernel, 1, 1), output_padding=[padding], **window.attributes)

        legal = accepted(range(30), call)
        made = {window.large(small, padding) for small in range(40)}
        assert legal == [n for n in range(30) if n in made], (window, padding)
        for large in {*range(20)} - {*legal}:
            message = call(large)
            assert message
            if message.endswith("[G7]"):
                nearest = [*[n for n in legal if n < large][-1:], *[n for n in legal if n > large][:1]]
                assert listed(message, "legal extents: ") == nearest, message


@shares
def test_g8_transposed_data_gradient_without_padding_counts(pads: dict[str, Any], share: int) -> None:
    for window, large in product(windows(pads, share), range(1, 12)):
        shapes = (1, large, 1), (window.kernel, 1, 1)
        count = len(range(0, large + window.total - window.span + 1, window.stride))
        message = refusal(T_DATA, *shapes, **window.attributes)
        if count:
            assert infer_shapes(T_DATA, *shapes, **window.attributes) == (1, count, 1)
        else:
            assert message
            assert message.endswith("[G8]"), message


@pytest.mark.parametrize("operator", [DATA, TRANSPOSE, T_DATA, T_WEIGHTS])
def test_a9_output_padding_is_accepted_below_its_limit(operator: str) -> None:
    for stride, dilation, padding in product(range(1, 5), range(1, 5), range(7)):
        window = Window(stride, dilation, 3, PADS[0])
        large = (1, window.large(3, padding), 1)
        shapes: dict[str, tuple[Any, ...]] = {
            DATA: (T_SRC, W),
            TRANSPOSE: (T_SRC, W),
            T_DATA: (large, W),
            T_WEIGHTS: (T_SRC, large, W),
        }
        message = refusal(operator, *shapes[operator], output_padding=[padding], **window.attributes)
        limit = stride if operator == DATA else max(stride, dilation)
        assert (message is None) == (padding < limit), message
        if message is None and operator in (DATA, TRANSPOSE):  # which infer the extent
            given: dict[str, Any] = window.attributes | {"output_padding": [padding]}
            assert infer_shapes(operator, *shapes[operator], **given) == large
        got = f"output_padding {padding} and stride {limit}" if operator == DATA else str(padding)
        assert message is None or message.endswith(f"got {got} [A9]")


# (operator, shapes, attributes, label, legal extents)
FAR = 10**5
WIDE = {"dilations": [2**62], "pads_begin": [2**63 - 1], "pads_end": [2**63 - 1]}  # more values than ``len`` can count
EMPTY, FIVE = (1, 0, 1), (5, 1, 1)
LONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str, range]] = [
    (DATA, (T_SRC, W, (1, 5, 1)), {}, "legal extents: ", range(2 * FAR + 3, 3 * FAR + 3)),
    (DATA, (T_SRC, W, (1, 5, 1)), {"auto_pad": "same_upper"}, "legal extents: ", range(2 * FAR + 1, 3 * FAR + 1)),
    (DATA, (T_SRC, W), {}, "axis 0: ", range(2 * FAR + 3, 3 * FAR + 3)),
    (WEIGHTS, ((1, FAR, 1), (1, 2, 1), (FAR, 1, 1)), {"pads_end": [9]}, "Kernels that fit: ", range(1, 10)),
    (T_WEIGHTS, (T_SRC, (1, 5, 1), W), {}, "legal extents: ", range(2 * FAR + 3, 3 * FAR + 3)),
    (T_WEIGHTS, (T_SRC, (1, FAR, 1), W), {"pads_end": [2 * FAR + 5]}, "legal extents: ", range(FAR - 2)),
    (DATA, (EMPTY, FIVE), {"dilations": [2**62]}, "axis 0: ", range(2**64 + 1)),
    (DATA, (EMPTY, FIVE, (1, 7, 1)), WIDE, "pads_begin + pads_end that fit: ", range(2**64 + 1 - 7)),
    (WEIGHTS, ((1, 7, 1), EMPTY, FIVE), WIDE, "pads_begin + pads_end that fit: ", range(2**64 + 1 - 7)),
]


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "label", "legal"), LONG, ids=[f"{row[0]}-{i}" for i, row in enumerate(LONG)]
)
def test_long_lists_are_abbreviated_and_cost_no_memory(
    operator: str, shapes: tuple[Any, ...], attributes: dict[str, Any], label: str, legal: range
) -> None:
    """A stride may be as long as 2^63: nothing may be built that is as long."""
    messages: list[str | None] = []
    call = partial(refusal, operator, *shapes, **{"strides": [FAR], "dilations": [1], **attributes})
    assert peak_bytes(lambda: messages.append(call())) < 10**6
    assert f"{label}{legal[0]}, {legal[1]}, ... {legal[-1]}" in str(messages[0])


@pytest.mark.every(2)
@pytest.mark.parametrize("stride", STRIDES)
def test_g6_weight_gradient_lists_the_pads_that_fit(stride: int) -> None:
    """All sums of pads that fit, none of them negative."""
    for src, dst, kernel in product(range(1, 7), range(4), range(1, 5)):
        messages = {
            pads: refusal(WEIGHTS, (1, src, 1), (1, dst, 1), (kernel, 1, 1), strides=[stride], pads_end=[pads])
            for pads in range(13)
        }
        fit = [pads for pads, message in messages.items() if message is None]
        for message in filter(None, messages.values()):
            listing = "pads_begin + pads_end that fit: "
            assert (listed(message, listing) if listing in message else []) == fit, message
