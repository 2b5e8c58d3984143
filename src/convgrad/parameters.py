"""The texts of the parameters of public functions, and their insertion into docstrings.

A parameter of several functions is documented only here. A function's own docstring can have an "Args:" section for its
other parameters, which takes precedence. Shapes come from the sentence "Shapes: ..." of the docstring, and default
values from the signature, so that neither can contradict the function.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])
WIDTH = 112  # characters per line of the inserted texts
REQUIRED = Parameter.empty  # the key of the text of a parameter without a default value

TEXTS: Mapping[str, str | Mapping[Any, str]] = {  # the text of a parameter, or one text per default value
    # operands of NumPy's functions
    "src": "The input of the layer, of shape {shape}.",
    "weights": "The weights of the layer, of shape {shape}.",
    "bias": {
        None: "One number per output channel, of shape {shape}; None adds nothing.",
        REQUIRED: "One number per channel, of shape {shape}.",
    },
    "diff_dst": "The gradient of the layer's output, of shape {shape}.",
    "dst_shape": "The full shape of the result, in the order of ``data_format``; None if it follows from the operands.",
    "src_shape": "The full shape of src, in the order of ``data_format``; None is the shape of ``actual``.",
    "weights_shape": {
        None: "The shape of the weights, in the order of ``weights_format``; it is required.",
    },
    "scale": "One factor per image, of shape {shape}, rounded to f32 (f64 for f64 operands).",
    # attributes
    "strides": "The step of the kernel in elements, one int for all spatial axes or one per axis.",
    "pads_begin": {
        0: "The number of zeros before the first element, one int for all spatial axes or one per axis.",
        None: "The zeros before the first element, one int or one per axis; None calculates them from the extents.",
    },
    "pads_end": {
        0: "The number of zeros after the last element, one int for all spatial axes or one per axis.",
        None: "The zeros after the last element, one int or one per axis; None calculates them from the extents.",
    },
    "dilations": "The distance between taps in elements, one int or one per axis; 1 leaves no gaps.",
    "auto_pad": '"none", "same_upper", "same_lower" or "valid"; all but "none" ignore both pads. None is "none".',
    "groups": "The number of groups that channels are divided into.",
    "data_format": '"NXC" (channels last) or "NCX" (channels first).',
    "weights_format": {
        "XIO": '"XIO" (taps, channels of src, channels of dst) or "OIX".',
        "XOI": '"XOI" (taps, channels of dst, channels of src) or "IOX".',
        None: 'None is "XIO" (or "OIX"), or if transposed "XOI" (or "IOX").',
    },
    "filter_format": '"XIO" (taps, channels of src, channels of dst) or "OIX".',
    "output_padding": {
        None: (
            "The number of elements added at the end, one int for all spatial axes or one per axis; None adds none, or "
            "follows from the shapes."
        ),
        0: "The number of elements added at the end, one int for all spatial axes or one per axis.",
    },
    "transposed": "Whether the layer is a transposed convolution.",
    # options
    "max_norm": "The largest norm. A sample's gradient with a larger norm is scaled down to it.",
    "needs": 'The gradients to compute, any of "src", "weights" and "bias"; the others are None.',
    "dtype": "The type of the result; None is the type of the operands.",
    "out": (
        "The array that the result is written to, which is also returned; None makes a new one. Its type must be that "
        "of the result: for bf16 operands and an f32 ``out``, also pass ``dtype='f32'``."
    ),
    "accumulate": "Whether the old value of ``out`` is added to the result, before the only rounding.",
    "threads": {
        None: "The largest number of threads; None is the setting of ``convgrad.threads``.",
        1: "The largest number of threads of each task; None is the worker's setting.",
    },
    "max_error": (
        "The largest error bound allowed, as a multiple of the direct sum's bound by norms. Larger values than 1 allow "
        "Winograd, for 3x3 layers in tiles of 2x2 from about 8, and of 4x4 from about 64. None is the setting of "
        "``convgrad.max_error``, initially 1."
    ),
    "activation": (
        '"relu" sets results below 0 to +0, before the only rounding. Bias and old value are added first. None changes '
        "nothing."
    ),
    # operators by name
    "operator": 'The name of the operator, for example ``"ConvolutionBackwardWeights"``.',
    "inputs": "The arrays and shapes of the operator, in the order of its document, optional inputs last.",
    "shapes": "One shape per input, in the order of the operator's document; for a shape input, its values.",
    "attributes": "The attributes of the operator, by the names of its document.",
    # arithmetic of a result to check
    "accumulation": "The format of the sums: f32, bf16, f16, tf32 or f64; None is f32, and f64 for f64 operands.",
    "height": (
        "The rounding depth, which is the largest number of roundings of a term, or the block sizes of a known order "
        "of the sums; None allows any order."
    ),
    "algorithm": '"sum", "winograd:M,R" (M outputs of R taps at a time along each axis) or "fft".',
    "old": "The array to which the result was added, of the result's shape; None if there was none.",
    "actual": "The array to judge, of shape {shape} and of any supported type.",
    # torch.nn.functional and torch.nn.grad
    "input": "The input of the layer, of shape {shape}.",
    "weight": "The weights of the layer, of shape {shape}.",
    "grad_output": "The gradient of the layer's output, of shape {shape}.",
    "input_size": "The size of the layer's input, one int per axis.",
    "weight_size": "The size of the layer's weights, one int per axis.",
    "stride": "The step of the kernel in elements, one int for all spatial axes or one per axis.",
    "padding": {
        0: "The number of zeros at both ends, one int for all spatial axes or one per axis{names}.",
        REQUIRED: '"SAME", "SAME_LOWER" or "VALID", or one pair (low, high) of numbers of elements per spatial axis.',
    },
    "padding_begin": "The zeros before the first element, one int for all spatial axes or one per axis{names}.",
    "padding_end": "The zeros after the last element, one int or one per axis; None is the value of ``padding_begin``.",
    "dilation": "The distance between taps in elements, one int for all spatial axes or one per axis.",
    # jax.lax
    "lhs": "The input of the layer, of shape {shape}.",
    "rhs": "The weights of the layer, of shape {shape}.",
    "rhs_dilation": "The distance between taps in elements, one int per spatial axis; None is 1 on all axes.",
    "dimension_numbers": "The order of the axes of lhs, rhs and result as in jax.lax; None is the order shown above.",
    "precision": "An argument of jax.lax, which has no effect.",
    "preferred_element_type": "The type of the result; None is the type of the operands.",
    # graphs, and arrays larger than memory
    "graph": "A finalized graph.",
    "limits": "The largest sizes that are accepted. Default: Limits().",
    "memory": (
        'The largest number of bytes of the arrays that the call makes, at any time, or a text such as "1GB" or '
        '"512MiB"; None is 1 GiB.'
    ),
}
_SECTION = re.compile(r"^(?:Args|Keyword Args):\n((?: {4}.*\n|\n(?= {4}))*)\n*", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}\*{0,2}(\w+): ", re.MULTILINE)
_END = re.compile(r"^(?:(?:Returns|Raises|Warns):$|>>> )", re.MULTILINE)  # what follows the parameters


def described(function: Function) -> Function:
    """Return a function with all its parameters documented in its docstring.

    >>> @described
    ... def narrow(src, *, threads=None):
    ...     '''Halve the channels. Shapes (NXC): src (N, X..., C).'''
    >>> print(narrow.__doc__)
    Halve the channels. Shapes (NXC): src (N, X..., C).
    <BLANKLINE>
    Args:
        src: The input of the layer, of shape (N, X..., C) in NXC.
    <BLANKLINE>
    Keyword Args:
        threads: The largest number of threads; None is the setting of ``convgrad.threads``. Default: None.
    """
    function.__doc__ = with_parameters(function.__doc__, inspect.signature(function).parameters)
    return function


def with_parameters(document: str | None, parameters: Mapping[str, Parameter], note: str = "") -> str | None:
    """Return a docstring with a note and the texts of all parameters, before "Returns:", "Raises:" and examples.

    Return None without a docstring, because Python removes docstrings if it is started with -OO.
    """
    if document is None:
        return None
    text = inspect.cleandoc(document) + "\n"
    own = {name: entry for section in _SECTION.findall(text) for name, entry in _entries(section)}
    text = _SECTION.sub("", text)
    if strange := own.keys() - parameters.keys():
        raise KeyError(f"documented, but not parameters: {strange}")
    sections: dict[str, list[str]] = {"Args:": [], "Keyword Args:": []}
    for name, parameter in parameters.items():
        keyword = parameter.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD)
        entry = own.get(name) or _entry(name, parameter, text)
        sections["Keyword Args:" if keyword else "Args:"].append(entry)
    parts = ["\n".join([title, *entries]) for title, entries in sections.items() if entries]
    end = section.start() if (section := _END.search(text)) else len(text)
    wrapped = textwrap.fill(note, WIDTH)
    return "\n\n".join(part for part in (text[:end].rstrip(), wrapped, *parts, text[end:].rstrip()) if part)


def _entries(section: str) -> list[tuple[str, str]]:
    """Return the names and the texts of the entries of a section of a docstring."""
    starts = list(_ENTRY.finditer(section))
    ends = [start.start() for start in starts[1:]] + [len(section)]
    return [(start[1], section[start.start() : end].rstrip()) for start, end in zip(starts, ends, strict=True)]


def _entry(name: str, parameter: Parameter, document: str) -> str:
    """Return the entry of a parameter of a function with a docstring."""
    text = TEXTS[name]
    if not isinstance(text, str):
        text = text[parameter.default]
    if "{shape}" in text:
        text = text.replace("{shape}", shape_of(name, document))
    names = '; or "same" or "valid"' if "str" in str(parameter.annotation) else ""
    stars = "*" * (parameter.kind is Parameter.VAR_POSITIONAL) + "**" * (parameter.kind is Parameter.VAR_KEYWORD)
    default, shown = parameter.default, ""
    if default is not REQUIRED and "Default: " not in text:
        shown = f' Default: "{default}".' if isinstance(default, str) else f" Default: {default!r}."
    return _wrapped(f"{stars}{name}: {text.replace('{names}', names)}{shown}")


@functools.cache
def _wrapped(entry: str) -> str:
    text, default, value = entry.partition(" Default: ")
    kept = text + default.replace(": ", ":\N{NO-BREAK SPACE}") + value.replace(" ", "\N{NO-BREAK SPACE}")
    filled = textwrap.fill(kept, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
    return filled.replace("\N{NO-BREAK SPACE}", " ")


def shape_of(name: str, document: str) -> str:
    """Return the shape of an array from the sentence of a docstring that begins with "Shapes".

    >>> shape_of("weights", "Shapes (NXC, XIO): src (N, I..., C), weights (K..., C/groups, O), bias (O,).")
    '(K..., C/groups, O) in XIO'
    """
    _, _, shapes = document.partition("Shapes")
    match = re.search(rf"\b{name}\s+(\([^()]*\)(?:\s+or\s+\([^()]*\))?)", shapes)
    if match is None:
        raise KeyError(f"the docstring has no shape of {name}")
    shape = " ".join(match[1].split())
    layouts = re.match(r" \((\w+)(?:, (\w+))?\):", shapes)
    if layouts is None or "..." not in shape:
        return shape
    return f"{shape} in {layouts[2 if shape.startswith('(K') else 1]}"
