"""Every parameter of every public function, class and method is documented, with the default of its signature."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import Any

import pytest

from tests.docs.test_api_pages import DIRECTIVE
from tests.docs.test_doctests import ADAPTERS
from tests.support.places import DOCS

SECTION = re.compile(r"^(?:Keyword )?Args:\n((?: +.*\n|\n(?= ))+)", re.MULTILINE)
ENTRY = re.compile(r"^    \*{0,2}(\w+): ((?:.*\n|\n(?= {5}))(?: {5,}.*\n|\n(?= {5}))*)", re.MULTILINE)
DEFAULT = re.compile(r" Default: (.+)\.$")
METHODS = re.compile(r"^\.\. autoclass:: (\S+)\n((?:   .*\n)*)", re.MULTILINE)


def named(text: str) -> Iterator[str]:
    """Return the full names of the functions, classes and modules of a page of the API."""
    module = ""
    for directive, name in DIRECTIVE.findall(text):
        if directive == "currentmodule":
            module = name
        elif directive in ("autofunction", "autoclass"):
            yield f"{module}.{name}"
        elif directive == "automodule":
            yield name


NAMES = sorted(name for page in (DOCS / "api").glob("*.md") for name in named(page.read_text(encoding="utf-8")))
HIDDEN = {  # methods that the pages leave out
    f"{name}.{member.strip()}"
    for page in (DOCS / "api").glob("*.md")
    for name, options in METHODS.findall(page.read_text(encoding="utf-8"))
    for excluded in re.findall(r":exclude-members: (.*)", options)
    for member in excluded.split(",")
}


def thing(name: str) -> Any:
    """Return a function, class or module by its full name."""
    pytest.importorskip(ADAPTERS.get(".".join(name.split(".")[:2]), "convgrad"))
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def callables(name: str) -> dict[str, Callable[..., Any]]:
    """Return what can be called of a public name: the function, the class and its methods, or a module's functions."""
    given = thing(name)
    if inspect.ismodule(given):
        found = vars(given).items()
        return {n: f for n, f in found if inspect.isfunction(f) and f.__module__ == name and not n.startswith("_")}
    if not inspect.isclass(given):
        return {name: given}
    methods = {
        f"{name}.{member}": getattr(given, member)
        for member, value in vars(given).items()
        if callable(getattr(given, member)) and (not member.startswith("_") or member == "__call__")
        if f"{given.__name__}.{member}" not in HIDDEN and not inspect.isclass(value)
    }
    return {name: given, **methods}


def documented(text: str) -> dict[str, str]:
    """Return the documented parameters of a docstring and their texts."""
    text = inspect.cleandoc(text) + "\n"
    return {
        name: " ".join(entry.split()) for section in SECTION.findall(text) for name, entry in ENTRY.findall(section)
    }


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a function and their default values; those of factories are made."""
    factories = {
        field.name: field.default_factory()
        for field in (dataclasses.fields(function) if dataclasses.is_dataclass(function) else ())
        if field.default_factory is not dataclasses.MISSING
    }
    parameters = inspect.signature(function).parameters
    return {name: one.default for name, one in parameters.items() if name != "self"} | factories


def value_of(text: str, scope: dict[str, Any]) -> object:
    """Return the value of a Python expression in a module, or the text itself if it has none."""
    try:
        return eval(text, dict(scope))
    except (NameError, SyntaxError):
        return text


def wrong(function: Callable[..., Any]) -> list[str]:
    """Return what is wrong with the documentation of a function's parameters."""
    texts, signature = documented(function.__doc__ or ""), defaults(function)
    found = [f"{name} is not documented" for name in signature if name not in texts]
    found += [f"{name} is documented, but not a parameter" for name in texts if name not in signature]
    if not found and [*texts] != [*signature]:
        found.append("the parameters are documented in another order")
    scope = vars(inspect.getmodule(inspect.unwrap(function)))
    for name in signature.keys() & texts.keys():
        shown = DEFAULT.search(texts[name])
        value = value_of(shown[1], scope) if shown else Parameter.empty
        if not (value is signature[name] or value == signature[name]):
            found.append(f"{name}: the default is {signature[name]!r}, but the text is {texts[name]!r}")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_documented(name: str) -> None:
    assert {full: faults for full, function in callables(name).items() if (faults := wrong(function))} == {}


def test_faults_are_found() -> None:
    def function(a: int, b: int = 1, *, c: str = "x") -> None:
        """Do nothing.

        Args:
            a: One.
            b: Two, which has a
                second line. Default: 2.

        Keyword Args:
            d: Three.
        """

    assert wrong(function) == [
        "c is not documented",
        "d is documented, but not a parameter",
        "b: the default is 1, but the text is 'Two, which has a second line. Default: 2.'",
    ]


def test_functions_need_no_docstrings() -> None:
    """Python removes docstrings if it is started with -OO."""
    program = "import convgrad, convgrad.testing; assert convgrad.run.__doc__ is convgrad.bias_add.__doc__ is None"
    subprocess.run([sys.executable, "-OO", "-c", program], check=True)
