"""The page of parameters, made from the texts that docstrings share: ``python -m tests.docs.parameters_page``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from inspect import Parameter

import convgrad
from convgrad.parameters import TEXTS
from convgrad.spec.operators import OPERATORS
from tests.support.places import DOCS

PAGE = DOCS / "parameters.md"
HEAD = """\
# Parameters

Use this page if you know a layer of another library and look for the name of a parameter. All functions of `convgrad`
use the same names, for example `strides` for every layer. The functions of `convgrad.torch` and `convgrad.jax` have the
[names of PyTorch and JAX](names.md) instead.

Each function has only [some of these parameters](api/functions.md). If a parameter has several rows, each row is for
different functions. Instead of one int per axis, you can pass one int for all axes.
"""
TITLES = {
    "Arrays and shapes": "Pass these first, in the order of the function's signature.",
    "Attributes": "The functions of a layer share these, so that you can pass the same `**layer` to each function:",
    "Options": "These decide how a result is computed and stored:",
}
NAMED = {"operator", "inputs"}
FEW = 4  # functions that a row names because they require its parameter, at most
INTS = re.compile(", one int (?:for all spatial axes )?or one per axis")
ATTRIBUTES = {"attributes", "transposed"} | {each.name for op in OPERATORS for each in op.attributes}


def used() -> dict[str, dict[str, Parameter]]:
    """Return the parameters of convgrad's functions that have a shared text, by function, in the order of the texts.

    Functions with older names of operators are left out.
    """
    found: dict[str, dict[str, Parameter]] = {name: {} for name in TEXTS}
    current = (name for name in convgrad.__all__ if "backprop" not in name)
    for function in filter(inspect.isfunction, (getattr(convgrad, name) for name in current)):
        for name, parameter in inspect.signature(function).parameters.items():
            if name in found:
                found[name][function.__name__] = parameter
    return {name: each for name, each in found.items() if each}


def section(name: str) -> str:
    """Return the section of a parameter."""
    if name in ATTRIBUTES:
        return "Attributes"
    arrays = "{shape}" in "".join(TEXTS[name] if isinstance(TEXTS[name], str) else TEXTS[name].values())
    return "Arrays and shapes" if arrays or "shape" in name or name in NAMED else "Options"


def rows(name: str, parameters: dict[str, Parameter]) -> Iterator[str]:
    """Yield the rows of a parameter, one per meaning: the name, the meaning, and the default value."""
    meanings: dict[str, dict[str, None]] = {}
    required = [function for function, one in parameters.items() if one.default is Parameter.empty]
    where = f"required in {', '.join(f'`{each}`' for each in required)}" if len(required) <= FEW else "required"
    for one in parameters.values():
        text = TEXTS[name]
        text = text if isinstance(text, str) else text[one.default]
        text = re.sub(r",? of shape \{shape\}|\{names\}", "", INTS.sub(", one int per axis", text))
        default = where if one.default is Parameter.empty else f"`{one.default!r}`".replace("'", '"')
        meanings.setdefault(text, {})["-" if one.kind == Parameter.VAR_KEYWORD else default] = None
    for text, defaults in meanings.items():
        yield f"| `{name}` | {text.replace('``', '`')} | {', '.join(defaults)} |\n"


def _lines() -> Iterator[str]:
    found = used()
    for title, words in TITLES.items():
        yield f"\n## {title}\n\n{words}\n\n| parameter | meaning | default |\n|---|---|---|\n"
        for name, parameters in found.items():
            if section(name) == title:
                yield from rows(name, parameters)


def page() -> str:
    return HEAD + "".join(_lines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
