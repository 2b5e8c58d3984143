"""The documentation's tables, made from the operator table, the rules and a run of every operator.

``python -m tests.docs.pages`` writes them, or those that it is given by name; a test compares the files.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from itertools import islice, product
from typing import Any

import numpy as np

import convgrad
from convgrad.errors import ConvgradError
from convgrad.formats import FORMATS
from convgrad.functional.call import prepare
from convgrad.spec import exact_result
from convgrad.spec.layouts import from_canonical
from convgrad.spec.operators import GENERATIONS, OPERATORS, Attribute, Operator
from convgrad.spec.rules import RULES
from tests.docs.command_page import command_line_page
from tests.support.helpers import Case, operands_of, run_case
from tests.support.places import DOCS

# -- operators and rules ------------------------------------------------------------------------------------------


OPERATORS_HEAD = """\
# Operators

Look up the operands and attributes of an operator here, for example to write a graph file. `convgrad.run` computes an
operator by its name:

```python
import numpy as np
import convgrad

src, weights = np.ones((1, 8, 8, 3), np.float32), np.ones((3, 3, 3, 4), np.float32)
dst = convgrad.run("Convolution", src, weights, strides=[1, 1], dilations=[1, 1])
print(dst.shape)
```
```text
(1, 6, 6, 4)
```

- You must pass all required attributes to `convgrad.run` and `convgrad.compile`. If an attribute has one value per
  spatial axis, pass a list.
- You can add or omit `-1` at the end of an operator's name, unless this gives the name of another operator.
- The page on [shapes](shapes.md#the-letters) explains the letters in the formulas.

Attributes can differ between versions of oneDNN, so each operator has its generations in parentheses:
"""
NEWEST = ("G3",)
OLDER_HEAD = """\
## Older names

Results have the same shapes as with the newer names, but you may pass only the spatial extents as `output_shape`. If
you omit the pads of an operator with "ConvolutionBackprop" in its name, convgrad [calculates
them](shapes.md#pads-of-older-names)."""
COMMON_HEAD = """\
## Attributes

All operators with weights have these attributes. Operators without weights have only `data_format`."""
DEVIATIONS = """\
The operators of G3 follow oneDNN's developer guide. Only `ConvolutionBackwardData` follows `ConvolutionBackpropData-1`
of the specification 1.0-alpha. convgrad differs from the specifications in [auto_pad](shapes.md#auto-pad) of data
gradients, and in the [channels that groups divide](shapes.md#layouts) in the format `IOX`."""
MORE_HEAD = """\
Some operators have more attributes, which their sections list. If a format has two rows, the second row is for
transposed operators:"""
MADE_RULES = re.compile(r"(<!-- made by tests/docs/pages.py: rules -->\n).*?(<!-- end -->)", re.DOTALL)
KINDS = {
    "O": "Operator and operands",
    "A": "Attributes",
    "T": "Types",
    "G": "Shapes",
    "D": "Arrays and options",
    "P": "Parts of a batch",
    "B": "Training steps (`same_bits`)",
    "S": "Samples",
    "M": "Memory",
    "K": "Checkpoints and progress",
}


def operators_page() -> str:
    with_weights = [op for op in OPERATORS if _has_weights(op)]
    common = [each for each in OPERATORS[0].attributes if all(each in op.attributes for op in with_weights)]
    added = {each for op in with_weights for each in op.attributes if each not in common}
    more = sorted(added, key=lambda each: (each.name, str(each.default)))
    lines = [OPERATORS_HEAD, *(f"- **{name}**: {meaning}" for name, meaning in GENERATIONS.items())]
    for head, attributes in ((COMMON_HEAD, common), (MORE_HEAD, more)):
        lines += ["", head, "", "| attribute | type | default | values |", "|---|---|---|---|"]
        lines += map(_attribute_row, attributes)
    lines += ["", DEVIATIONS]
    for op in (each for each in OPERATORS if each.generations == NEWEST):
        lines += ["", f"## {op.name} ({', '.join(op.generations)})", ""]
        lines += [f"- Operands: {_operands(op)}. Result: `{op.output.name}`.", f"- Shape: {_code_of_names(op)}."]
        if _has_weights(op):
            lines += [f"- More attributes: {_attributes(op, common)}."]
    lines += [
        "",
        OLDER_HEAD,
        "",
        "| operator | operands | result | more attributes | specification |",
        "|---|---|---|---|---|",
    ]
    for op in (each for each in OPERATORS if each.generations != NEWEST):
        name, more = f"{op.name} ({', '.join(op.generations)})", _attributes(op, common) if _has_weights(op) else ""
        lines += [f"| {name} | {_operands(op)} | `{op.output.name}` | {more} | {op.document} |"]
    return "\n".join(lines) + "\n"


def _operands(op: Operator) -> str:
    return ", ".join(f"`{p.name}`" + " (optional)" * (not p.required) for p in op.operands)


def _attributes(op: Operator, common: Container[Attribute]) -> str:
    """Return the attributes of an operator that not all operators have."""
    of_op = (each for each in op.attributes if each not in common)
    return ", ".join(f"`{a.name}` (default {a.default})" if a.choices else f"`{a.name}`" for a in of_op)


def _code_of_names(op: Operator) -> str:
    """Return the rule of the result's shape, with the operator's names as code."""
    names = {each.name for each in op.operands} | {each.name for each in op.attributes}
    rule = op.shape_rule.replace("which you must pass as an operand or attribute", "a required operand or attribute")
    return re.sub(r"\b\w{3,}\b", lambda word: f"`{word[0]}`" if word[0] in names else word[0], rule)


def _has_weights(op: Operator) -> bool:
    """Return whether an operator has weights, and with them the common attributes."""
    return op.attribute("strides") is not None


def _attribute_row(a: Attribute) -> str:
    values = ", ".join(a.choices) or (">= " + str(a.minimum))
    default = a.default if a.default is not None else ("zeros" if a.name.startswith("pads") else "none")
    kind = {"s64": "integer", "s64[]": "integers", "string": "string"}[a.type] + ", one per axis" * a.per_axis
    return f"| `{a.name}` | {kind} | {'required' if a.required else default} | {values} |"


def errors_page() -> str:
    """Return the page of errors with its list of rules made again."""
    lines = []
    for letter, title in KINDS.items():
        each = [rule for rule in RULES.values() if rule.id[0] == letter]
        usual = Counter(rule.error.__name__ for rule in each).most_common(1)[0][0]
        lines += ["", f"### {title} (`{usual}`)", ""]
        for rule in each:
            error = rule.error.__name__
            lines.append(f"- **{rule.id}**{f' (`{error}`)' * (error != usual)}. {rule.statement}")
    rules = "\n".join(lines)
    page = (DOCS / "first_errors.md").read_text(encoding="utf-8")
    return MADE_RULES.sub(lambda found: f"{found[1]}{rules}\n\n{found[2]}", page)


# -- coverage ------------------------------------------------------------------------------------------

FEATURES: Mapping[str, tuple[str | None, Callable[[int], dict[str, Any]]]] = {
    # feature: (the attribute it needs, its values on so many axes)
    "plain": (None, lambda axes: {}),
    "strides": ("strides", lambda axes: {"strides": [2] * axes}),
    "dilations": ("dilations", lambda axes: {"dilations": [2] * axes}),
    "pads": ("pads_begin", lambda axes: {"pads_begin": [1] * axes, "pads_end": [2] * axes}),
    "same_upper": ("auto_pad", lambda axes: {"auto_pad": "SAME_UPPER", "strides": [2] * axes}),
    "same_lower": ("auto_pad", lambda axes: {"auto_pad": "same_lower", "strides": [2] * axes}),
    "valid": ("auto_pad", lambda axes: {"auto_pad": "VALID"}),
    "groups": ("groups", lambda axes: {"groups": 2}),
    "output_padding": ("output_padding", lambda axes: {"strides": [2] * axes, "output_padding": [1] * axes}),
    "shape operand": ("shape", lambda axes: {}),
    "shape attribute": ("shape", lambda axes: {}),
    "bias": ("bias", lambda axes: {}),
    "dtype": (None, lambda axes: {}),
    "accumulate": (None, lambda axes: {}),
}
AXES = (1, 2, 3, 4)


def applies(op: Operator, feature: str) -> bool:
    needs, _ = FEATURES[feature]
    shape_operand = any(p.is_shape for p in op.operands)
    shape_attribute = any(a.means in ("weights_shape", "dst_shape") for a in op.attributes)
    if feature in ("shape operand", "shape attribute"):
        return shape_operand if feature == "shape operand" else shape_attribute
    if needs == "bias":
        return any(p.name == "bias" and not p.required for p in op.operands)
    return needs is None or op.attribute(needs) is not None


def _case(op: Operator, feature: str, type_name: str, data_format: str, weights_format: str, axes: int) -> Case:
    fmt = FORMATS[type_name]
    dtype = ("f64" if type_name == "f64" else "f32") if feature == "dtype" else None
    if op.attribute("strides") is None:
        data = from_canonical((2, 4, *[3] * axes), data_format)
        return Case(op, (data, (4,))[: len(op.operands)], {"data_format": data_format}, fmt, dtype)
    forward = "ConvTranspose" if op.transposed else "Convolution"
    attributes: dict[str, Any] = {"strides": [1] * axes, "dilations": [1] * axes, "data_format": data_format}
    attributes |= {"weights_format": weights_format} | FEATURES[feature][1](axes)
    extent, kernel = (6, 3) if axes <= 2 else (4, 2)
    src = from_canonical((2, 4, *[extent] * axes), data_format)
    weights = from_canonical((4, 4 // attributes.get("groups", 1), *[kernel] * axes), weights_format)
    plain = {k: v for k, v in attributes.items() if k != "output_padding" or op.transposed}
    dst = convgrad.infer_shapes(forward, src, weights, **plain)
    if feature == "output_padding" and not op.transposed:
        src = from_canonical((2, 4, *[extent - (extent - kernel) % 2 + 1] * axes), data_format)
        dst = convgrad.infer_shapes(forward, src, weights, **plain)
    tensors = {"src": dst, "dst": src} if op.transposed else {"src": src, "dst": dst}
    shapes = [(tensors | {"weights": weights, "bias": (4,)})[p.tensor] for p in op.operands]
    attributes[op.attribute("weights_format").name] = attributes.pop("weights_format")  # type: ignore[union-attr]
    as_attribute = [a for a in op.attributes if a.means in ("weights_shape", "dst_shape")]
    infers = op.solves_for == "src" and not op.transposed and feature == "output_padding"
    if as_attribute and feature != "shape operand" and op.operands[-1].is_shape and not infers:
        attributes[as_attribute[0].name] = list(shapes[-1])
    drop = (op.operands[-1].is_shape and bool(as_attribute) and feature != "shape operand") or (
        op.operands[-1].name == "bias" and feature != "bias"
    )
    return Case(op, tuple(shapes[:-1] if drop else shapes), attributes, fmt, dtype)


def _combinations(op: Operator) -> Iterator[tuple[str, str, str, int]]:
    attribute = op.attribute("weights_format")
    layouts = attribute.choices if attribute else ("",)
    yield from product(FORMATS, ("NXC", "NCX"), layouts, AXES)


def _green(case: Case, accumulate: bool) -> bool:
    operands = operands_of(case, "integers", 0)
    if not accumulate:
        prepared, got, answer = run_case(case, operands)
        return got.tobytes() == answer.rounded(prepared.problem).tobytes()
    prepared = prepare(case.op.name, operands, case.attributes, case.dtype, accumulate=True)
    old = np.arange(np.prod(prepared.problem.output_shape)).reshape(prepared.problem.output_shape) % 5
    out = old.astype(prepared.problem.output_format.dtype)
    answer = exact_result.evaluate(prepared.problem, prepared.operands, old=prepared.canonical_output(out.copy()))
    convgrad.run(case.op.name, *operands, dtype=case.dtype, out=out, accumulate=True, **case.attributes)
    return prepared.canonical_output(out).tobytes() == answer.rounded(prepared.problem).tobytes()


def coverage(op: Operator, every: int = 1) -> dict[str, tuple[int, int]]:
    """Return, for each feature, how many of its combinations, or of some, give the oracle's bits, of how many."""
    cells = {}
    for at, feature in enumerate(feature for feature in FEATURES if applies(op, feature)):
        outcomes = []
        for combination in islice(_combinations(op), at % every, None, every):
            try:
                outcomes.append(_green(_case(op, feature, *combination), feature == "accumulate"))
            except ConvgradError as error:
                raise AssertionError(f"{op.name} {feature} {combination}") from error
        cells[feature] = (sum(outcomes), len(outcomes))
    return cells


PAGES: Mapping[str, Callable[[], str]] = {
    "operators.md": operators_page,
    "first_errors.md": errors_page,
    "command_line.md": command_line_page,
}

if __name__ == "__main__":
    DOCS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or PAGES:
        (DOCS / name).write_text(PAGES[name](), encoding="utf-8")
        print(f"wrote docs/{name}", file=sys.stderr)
