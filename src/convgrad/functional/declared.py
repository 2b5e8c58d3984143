"""Functions made of declarations: a signature and a docstring, whose keywords become attributes and options of a call.

Each parameter is documented once, here. The docstring of a function gets those of its keywords.
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
    "Operands are arrays of one type (f32, bf16, f16, f64, f8), of any strides, of NumPy, PyTorch or JAX. The result "
    "is an array of the first one's library."
)
WIDTH = 112  # of lines that are wrapped
KEYWORDS = {
    "strides": "steps of the kernel, one int for all spatial axes or one per axis.",
    "pads_begin": "zeros before the first element of each axis, one int or one per axis.",
    "pads_end": "zeros after the last element of each axis, one int or one per axis.",
    "dilations": "distances between taps, one int or one per axis; 1 leaves no gaps.",
    "auto_pad": '"none", "same_upper", "same_lower" or "valid"; all but "none" replace both pads.',
    "groups": "the number of groups that channels are divided into.",
    "data_format": '"NXC" (channels last) or "NCX" (channels first).',
    "weights_format": {"XIO": '"XIO" or "OIX".', "XOI": '"XOI" or "IOX".', None: "that of the operator, by default."},
    "filter_format": '"XIO" or "OIX".',
    "output_padding": "elements added at the end of each axis, one int or one per axis.",
    "transposed": "True for the gradient of a transposed convolution.",
    "scale": "one number per image, of shape (N,), rounded to f32.",
    "max_norm": "the largest norm that a sample's gradient may have.",
    "needs": 'the names of the gradients to compute, of "src", "weights" and "bias"; the others are None.',
    "dtype": "the type of the result; by default that of the operands.",
    "out": "an array that the result is written to and that is returned.",
    "accumulate": "True to add the result to out, in f32, before the one rounding.",
    "threads": "the largest number of threads; by default that of ``convgrad.threads``.",
    "max_error": (
        "how many times the bound of a tile's norms the error may be. f32 layers of 3x3 taps, stride 1 and 32 channels "
        "or more may be computed by Winograd, in tiles of 2x2 from about 8 on and of 4x4 from 64 on. 1, the default, "
        "asks for the direct sum, which has a bound per element."
    ),
    "activation": '"relu" to replace results below 0 by 0, after bias and old value, before the one rounding.',
}


def computed_by(compute: Callable[..., Any], operator: str, note: str = OPERANDS) -> Callable[[Function], Function]:
    """Return a decorator that makes a declaration the function which calls ``compute``.

    ``compute`` takes the operator, all operands, the attributes by name, and options as keywords. Keywords that the
    signature lacks are passed as attributes, for the checks to say what was meant. Type checkers refuse them.

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
            if wrong or not operands.keys().isdisjoint(named):  # wrong: Python says what, as it calls the declaration
                declaration(*given, **{name: value for name, value in named.items() if name in parameters})
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
    """Return what makes a library's function of one of ours: it has the options that ``compute`` has.

    Its docstring has a note instead of examples, which are of NumPy.
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
    """Return a docstring with a note and a section of keywords before what is raised."""
    lines = [*textwrap.wrap(note, WIDTH), "", "Keyword Args:"]
    for name, default in keywords.items():
        words: Any = KEYWORDS[name]
        words = words[default] if isinstance(words, dict) else words
        shown = "" if default is None or default is Parameter.empty else f" Default: {default!r}."
        lines += textwrap.wrap(f"{name}: {words}{shown}", WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
    before, raises, after = inspect.cleandoc(text).partition(RAISES)
    section = "\n".join(lines)
    return f"{before.rstrip()}\n\n{section}\n{raises}{after}"
