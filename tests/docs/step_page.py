"""The page of the operators of a training step, made from the table that `same_bits` uses.

``python -m tests.docs.step_page`` writes it. It needs PyTorch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from tests.support.places import DOCS

if TYPE_CHECKING:
    from convgrad.torch.training.row import OperatorRow

PAGE = DOCS / "step_operators.md"
HEAD = """\
# Operators of a training step

Use this page if your own program must give the bits of [`same_bits()`](training_step.md), for example in another
framework. Each row defines operators of ATen, which all functions, modules and optimizers of PyTorch call, including
their in-place and `out` forms.

- **Operations.** The result of each operation is rounded to f32 once. If the formula contains "in f64", operations are
  rounded to f64, and the final result to f32. A product is rounded before it is added, unless the formula contains
  "fused".
- **Functions** such as exp are sequences of f32 operations, unless the formula contains "in f64". The sequences are in
  `src/convgrad/spec/elementwise/`.
- **Random numbers** r come from PyTorch's generator, in row-major order of the indices. They are f64, unless the
  formula names another type.
- **Types.** bf16 and f16 tensors are converted to f32 first, and the result is rounded to their type once. Only these
  operators accept f64 tensors: {f64}.
- **Error.** The last column bounds the error of one element, compared with the formula in exact arithmetic. Here, u is
  2^-24, v is 2^-53, h is the rounding depth of the sum, and R is u abs(result). An ulp of a number is 2^-23 times the
  largest power of two that does not exceed the number. If the result is bf16 or f16, add the rounding to this type.
"""
TITLES = {
    "no sum": (
        "Without a sum",
        "G is `grad_output`. If the loss is a mean, G is `grad_output` divided by the number of losses.",
    ),
    "f64 sections": (
        "Sums in f64 sections",
        "The [order of these sums](numerics.md#operators-of-a-training-step) is specified, and each sum is rounded to\n"
        "f32 once. In every memory format, the positions of a sum are in row-major order.",
    ),
    "one after another": (
        "Sums of few terms",
        "The terms are added one after another, and each addition rounds to f32.",
    ),
    "order of the convolution operator": ("Products", "The sums have the order of a convolution operator."),
}
SHARED = {  # by name: the texts that several rows repeat, as constants of modules
    "NORM": ("norms", "_FORWARD", "_BOUND"),
    "NORM_GRADIENT": ("norms", "_BACKWARD", "_BACKWARD_BOUND"),
    "LOSS": ("losses", "_REDUCED", "_DEPTH"),
}
HEADER = "| operators | formula | largest error |\n|---|---|---|\n"
BY_MAP = re.compile("[,;]?( exp)? by f32 operations|,? then rounded(?! to)")
FUNCTION = re.compile(r"\w+\(self\)")


def _rows() -> list[OperatorRow]:
    import_module("convgrad.torch.training.groups")  # imports the modules that have rows
    from convgrad.torch.training.row import ROWS  # noqa: PLC0415 - the page is read without PyTorch

    return ROWS


def _lines() -> Iterator[str]:
    from convgrad.torch.training import losses, norms  # noqa: PLC0415 - the page is read without PyTorch

    modules = {"norms": norms, "losses": losses}
    shared = {name: [getattr(modules[module], each) for each in texts] for name, (module, *texts) in SHARED.items()}

    def short(text: str) -> str:
        for name, texts in shared.items():
            for each in texts:
                text = text.replace(each, name)
        return BY_MAP.sub("", text.replace("(grad_output, / count for the mean)", "G")).replace("u abs(result)", "R")

    ordered = sorted(_rows(), key=lambda row: row.names[0].strip("_"))
    for order, (title, words) in TITLES.items():
        yield f"\n## {title}\n\n{words}\n\n"
        if order == "f64 sections":
            yield "Some rows refer to these formulas by name:\n\n| name | formula | largest error |\n|---|---|---|\n"
            for name, (formula, bound) in shared.items():
                yield f"| {name} | {formula} | {bound.replace('u abs(result)', 'R')} |\n"
            yield "\n"
        functions = [row for row in ordered if row.order == order and FUNCTION.fullmatch(short(row.formula))]
        if functions:
            by_bound: dict[str, list[str]] = {}
            for row in functions:
                by_bound.setdefault(row.bound, []).append(f"`{row.names[0]}`")
            yield "| functions of one number | largest error |\n|---|---|\n"
            yield from (f"| {', '.join(names)} | {bound} |\n" for bound, names in by_bound.items())
            yield "\n"
        yield HEADER
        cells: dict[tuple[str, str], list[str]] = {}
        for row in ordered:
            if row.order.startswith(order) and row not in functions:
                more = row.order.removeprefix(order)
                formula = short(row.formula) + f"; sections{more}" * bool(more)
                cells.setdefault((formula, short(row.bound)), []).extend(row.names)
        for (formula, bound), names in cells.items():
            yield f"| {', '.join(f'`{name}`' for name in names)} | {formula} | {bound} |\n"


def page() -> str:
    from convgrad.torch.training.row import ELEMENTWISE  # noqa: PLC0415 - the page is read without PyTorch

    accepting = {name.split(".")[0] for row in _rows() if row.types == ELEMENTWISE for name in row.names}
    names = ", ".join(f"`{name}`" for name in sorted(accepting, key=lambda name: (name.strip("_"), name)))
    return HEAD.replace("{f64}", names) + "".join(_lines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
