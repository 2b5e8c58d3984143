"""Generation of the public functions from declarations, which consist of a signature and a docstring.

Keyword arguments become attributes and options of a call. ``parameters.py`` documents the parameters of each function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import get_args, get_type_hints

from convgrad.parameters import Function, with_parameters
from convgrad.spec.operators import OPERATORS, Attribute, Operator, find

ATTRIBUTES = frozenset(attribute.name for op in OPERATORS for attribute in op.attributes)
RAISES = "\nRaises:\n"
OPERANDS = (
    "Operands are NumPy, PyTorch or JAX arrays of one type (f32, bf16, f16, f64 or f8), with any strides. The result "
    "is an array of the first operand's library. Arrays with ``__cuda_array_interface__`` are computed on their GPU, "
    "into ``out``."
)


def defaults_of(op: Operator) -> dict[str, object]:
    """Return the default values of a function's keywords that are not None: attributes of an operator, and options."""

    def default(attribute: Attribute) -> object:
        if attribute.is_pad:
            return None if op.calculates_pads else 0
        return 1 if attribute.required else attribute.default

    return {attribute.name: default(attribute) for attribute in op.attributes} | {"accumulate": False}


def _signature(declaration: Callable[..., object], defaults: Mapping[str, object]) -> inspect.Signature:
    """Return a declaration's signature with the keywords of ``**keywords: Unpack[...]`` one by one."""
    signature = inspect.signature(declaration)
    *others, last = signature.parameters.values()
    if last.kind is not Parameter.VAR_KEYWORD:
        return signature
    (kind,) = get_args(get_type_hints(declaration)[last.name])
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=annotation.__forward_arg__)
        for name, annotation in kind.__annotations__.items()
    ]
    return signature.replace(parameters=[*others, *keywords])


def computed_by(
    compute: Callable[..., object], operator: str, defaults: Mapping[str, object] | None = None, note: str = OPERANDS
) -> Callable[[Function], Function]:
    """Return a decorator that turns a declaration into a function that calls ``compute``.

    ``defaults`` are the default values of keywords; without them, those of the operator. Other keywords are None by
    default.

    ``compute`` takes the operator, all operands, the attributes by name, and options as keywords. Keywords that are
    not in the signature are passed as attributes, so that the checks can suggest a correction. Type checkers refuse
    keywords that are not in the signature.

    >>> @computed_by(lambda *arguments, **options: (arguments, options), "Convolution")
    ... def convolution(src, weights, bias=None, *, strides=1, threads=None):
    ...     "Convolve. Shapes: src (N, C), weights (C, O), bias (O,)."
    >>> convolution("x", "w", stride=2)
    (('Convolution', ('x', 'w', None), {'strides': 1, 'stride': 2}), {'threads': None})
    """

    def decorator(declaration: Function) -> Function:
        signature = _signature(declaration, defaults_of(find(operator)) if defaults is None else defaults)
        vars(declaration)["__signature__"], parameters = signature, signature.parameters
        operands = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        }
        keywords = {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY
        }
        attributes_left_out = {name: value for name, value in keywords.items() if name in ATTRIBUTES}
        options_left_out = {name: value for name, value in keywords.items() if name not in ATTRIBUTES}
        ends = {count: tuple(operands.values())[count:] for count in range(len(operands) + 1)}
        required = {name for name, default in keywords.items() if default is Parameter.empty}

        @functools.wraps(declaration)
        def function(*positional: object, **named: object) -> object:
            end = ends.get(len(positional), (Parameter.empty,))
            wrong = Parameter.empty in end or not required <= named.keys()
            if wrong or not operands.keys().isdisjoint(named):
                needed = required.union(
                    name for name in [*operands][len(positional) :] if operands[name] is Parameter.empty
                )
                known = {name: value for name, value in named.items() if name in parameters}
                if len(known) < len(named) and not needed <= known.keys():  # a misspelt operand, before a missing one
                    unknown = next(name for name in named if name not in known)
                    raise TypeError(f"{declaration.__qualname__}() got an unexpected keyword argument {unknown!r}")
                declaration(*positional, **known)  # which raises Python's own TypeError
                end = tuple(named.pop(name, operands[name]) for name in [*operands][len(positional) :])
            attributes, options = attributes_left_out.copy(), options_left_out.copy()
            for name, value in named.items():
                (options if name in options else attributes)[name] = value
            return compute(operator, positional + end, attributes, **options)

        function.__doc__ = with_parameters(declaration.__doc__, parameters, note)
        vars(function)["operator"] = operator
        return function  # type: ignore[return-value]

    return decorator


def on(compute: Callable[..., object], module: str, note: str, own: str = "") -> Callable[[Function], Function]:
    """Return a decorator that makes another library's version of a NumPy function, with the options of ``compute``.

    The docstring of the new function has no examples, because the examples use NumPy arrays. ``own`` is a section of
    the options that have another text than in the NumPy function.
    """
    theirs = _signature(compute, {}).parameters

    def decorator(function: Function) -> Function:
        declaration, name = inspect.unwrap(function), function.__name__
        signature = inspect.signature(declaration)
        parameters = [
            parameter.replace(default=theirs[name].default) if name in theirs else parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD or name in ATTRIBUTES or name in theirs
        ]

        def theirs_declared(*positional: object, **named: object) -> None:
            signature.bind(*positional, **named)

        vars(theirs_declared)["__signature__"] = signature.replace(parameters=parameters)
        theirs_declared.__annotations__ = {"return": signature.return_annotation}
        theirs_declared.__module__, theirs_declared.__name__, theirs_declared.__qualname__ = module, name, name
        if declaration.__doc__ is not None:
            text = inspect.cleandoc(declaration.__doc__).partition("\n\n>>>")[0]
            theirs_declared.__doc__ = text.replace(RAISES, own + RAISES)
        version = computed_by(compute, vars(function)["operator"], note=note)(theirs_declared)
        return version  # type: ignore[return-value]

    return decorator
