"""Generation of the public functions from declarations, which consist of a signature and a docstring.

Keyword arguments become attributes and options of a call. Each parameter is documented only here. The text of a
parameter is inserted into the docstring of every function that has the parameter.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, TypeVar

from convgrad.spec.operators import OPERATORS

Function = TypeVar("Function", bound=Callable[..., Any])
ATTRIBUTES = frozenset(attribute.name for op in OPERATORS for attribute in op.attributes)
RAISES = "\nRaises:\n"
OPERANDS = (
    "Operands are NumPy, PyTorch or JAX arrays of one type (f32, bf16, f16, f64 or f8), with any strides. The result "
    "is an array of the first operand's library. Arrays with ``__cuda_array_interface__`` are computed on their GPU, "
    "into ``out``."
)
WIDTH = 112  # characters per line of the inserted texts
KEYWORDS: Mapping[str, Any] = {  # the text of a keyword, or one text per default value
    "strides": "the step of the kernel, one int for all spatial axes or one per axis.",
    "pads_begin": {
        0: "zeros before the first element of each axis, one int or one per axis.",
        None: "zeros before the first element of each axis; None calculates them from the extents.",
    },
    "pads_end": {
        0: "zeros after the last element of each axis, one int or one per axis.",
        None: "zeros after the last element of each axis; None calculates them from the extents.",
    },
    "dilations": "distances between taps, one int or one per axis; 1 leaves no gaps.",
    "auto_pad": '"none", "same_upper", "same_lower" or "valid"; all but "none" replace both pads.',
    "groups": "the number of groups that channels are divided into.",
    "data_format": '"NXC" (channels last) or "NCX" (channels first).',
    "weights_format": {
        "XIO": '"XIO" (taps, channels of src, channels of dst) or "OIX".',
        "XOI": '"XOI" (taps, channels of dst, channels of src) or "IOX".',
        None: '"XIO" (default) or "OIX"; if transposed, "XOI" (default) or "IOX".',
    },
    "filter_format": '"XIO" (taps, channels of src, channels of dst) or "OIX".',
    "output_padding": "elements added at the end of each axis, one int or one per axis.",
    "transposed": "True for the gradient of a transposed convolution.",
    "scale": "one number per image, of shape (N,), rounded to f32.",
    "max_norm": "the largest norm. A sample's gradient with a larger norm is scaled down to it.",
    "needs": 'the gradients to compute, any of "src", "weights" and "bias"; the others are None.',
    "dtype": "the type of the result; the default is the type of the operands.",
    "out": "the array that the result is written to; it is also returned.",
    "accumulate": "True adds the old value of out to the result, before the only rounding.",
    "threads": {
        None: "the largest number of threads; ``convgrad.threads`` sets the default.",
        1: "the largest number of threads of each task.",
    },
    "max_error": (
        "the largest error bound allowed, as a multiple of the direct sum's bound by norms. With 1, the direct sum is "
        "computed, which also has a bound per element. Larger values allow Winograd for layers with 3 or 5 taps along "
        "an axis, stride 1, dilation 1 and at least 32 channels per group. 3x3 layers have tiles of 2x2 from about 8, "
        "and of 4x4 from about 64. "
        "``convgrad.max_error`` sets the default, initially 1."
    ),
    "activation": '"relu" sets results below 0 to +0, before the only rounding. Bias and old value are added first.',
}


def computed_by(compute: Callable[..., Any], operator: str, note: str = OPERANDS) -> Callable[[Function], Function]:
    """Return a decorator that turns a declaration into a function that calls ``compute``.

    ``compute`` takes the operator, all operands, the attributes by name, and options as keywords. Keywords that are
    not in the signature are passed as attributes, so that the checks can suggest a correction. Type checkers refuse
    keywords that are not in the signature.

    >>> @computed_by(lambda *given, **options: (given, options), "Convolution")
    ... def convolution(src, weights, bias=None, *, strides=1, threads=None):
    ...     "Convolve."
    >>> convolution("x", "w", stride=2)
    (('Convolution', ('x', 'w', None), {'strides': 1, 'stride': 2}), {'threads': None})
    """

    def made(declaration: Function) -> Function:
        parameters = inspect.signature(declaration).parameters
        operands = {name: one.default for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD}
        keywords = {name: one.default for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}
        attributes_left_out = {name: value for name, value in keywords.items() if name in ATTRIBUTES}
        options_left_out = {name: value for name, value in keywords.items() if name not in ATTRIBUTES}
        ends = {count: tuple(operands.values())[count:] for count in range(len(operands) + 1)}
        required = {name for name, default in keywords.items() if default is Parameter.empty}

        @functools.wraps(declaration)
        def function(*given: Any, **named: Any) -> Any:
            end = ends.get(len(given), (Parameter.empty,))
            wrong = Parameter.empty in end or not required <= named.keys()
            if wrong or not operands.keys().isdisjoint(named):
                needed = required.union(name for name in [*operands][len(given) :] if operands[name] is Parameter.empty)
                known = {name: value for name, value in named.items() if name in parameters}
                # The declaration raises Python's own TypeError, which names a misspelt operand before a missing one.
                declaration(*given, **known if needed <= known.keys() else named)
                end = tuple(named.pop(name, operands[name]) for name in [*operands][len(given) :])
            attributes, options = attributes_left_out.copy(), options_left_out.copy()
            for name, value in named.items():
                (options if name in options else attributes)[name] = value
            return compute(operator, given + end, attributes, **options)

        function.__doc__ = _documented(declaration.__doc__ or "", note, keywords)
        vars(function)["operator"] = operator
        return function  # type: ignore[return-value]

    return made


def on(compute: Callable[..., Any], module: str, note: str) -> Callable[[Function], Function]:
    """Return a decorator that makes another library's version of a NumPy function, with the options of ``compute``.

    The docstring of the new function has no examples, because the examples use NumPy arrays.
    """
    theirs = inspect.signature(compute).parameters

    def made(function: Function) -> Function:
        declaration, name = inspect.unwrap(function), function.__name__
        signature = inspect.signature(declaration)
        kept = [
            one.replace(default=theirs[name].default) if name in theirs else one
            for name, one in signature.parameters.items()
            if one.kind is one.POSITIONAL_OR_KEYWORD or name in ATTRIBUTES or name in theirs
        ]

        def theirs_declared(*given: Any, **named: Any) -> None:
            signature.bind(*given, **named)

        text, _, raised = inspect.cleandoc(declaration.__doc__ or "").partition(RAISES)
        document = raised.partition("\n\n")[2].partition("\n\n>>>")[0]
        vars(theirs_declared)["__signature__"] = signature.replace(parameters=kept)
        theirs_declared.__module__, theirs_declared.__name__, theirs_declared.__qualname__ = module, name, name
        theirs_declared.__doc__ = f"{text}{RAISES}    The errors are those of :func:`convgrad.{name}`.\n\n{document}"
        found: Any = computed_by(compute, vars(function)["operator"], note)(theirs_declared)
        return found  # type: ignore[no-any-return]

    return made


def _documented(text: str, note: str, keywords: Mapping[str, Any]) -> str:
    """Return a docstring with a note and the texts of the keywords inserted before "Raises:"."""
    lines = [*textwrap.wrap(note, WIDTH), "", "Keyword Args:"]
    for name, default in keywords.items():
        words = KEYWORDS[name]
        words = words[default] if isinstance(words, dict) else words
        shown = "" if default is None or default is Parameter.empty else f" Default: {default!r}."
        lines += textwrap.wrap(f"{name}: {words}{shown}", WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
    before, raises, after = inspect.cleandoc(text).partition(RAISES)
    section = "\n".join(lines)
    return f"{before.rstrip()}\n\n{section}\n{raises}{after}"
