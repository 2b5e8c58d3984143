"""The public cases: geometries on which libraries were wrong, edge cases, layers of networks, and conformance.

A collection is a file of lines

    NAME [deconv] DESCRIPTOR [WORD=VALUE]...  # why

with a benchdnn descriptor, whose geometry is run in every pass. A name with ``{c=1,15,16}`` gives a line for each of
the values, and a later ``{c}`` is replaced by the value. The words are:

| word                     | meaning                                                              | default           |
|--------------------------|----------------------------------------------------------------------|-------------------|
| roles                    | directions of a problem line                                         | FWD_D,BWD_D,BWD_W |
| types, layouts           | types and DATA_FORMAT[:WEIGHTS_FORMAT], in all combinations          | the table KINDS   |
| auto_pad                 | replaces the pads                                                    | none              |
| pads_end, output_padding | replace the values that the descriptor's extents imply               | by the extents    |
| view                     | a row of VIEWS: the strides of the operands in memory                | contiguous        |
| nan, inf                 | a tensor whose middle element is this value, in passes that read it  | integers          |

A case with a view or a special value has operands, which are small integers. Other cases have no operands.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib import resources
from itertools import product

from convgrad import notation
from convgrad.errors import NotationError
from convgrad.functional.call import problem_from_shapes
from convgrad.notation import OperatorCall
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.strange import VALUES, VIEWS, strange

NAMES = ("hard", "edges", "shapes", "large", "conformance")
DIRECTIONS = "FWD_D,BWD_D,BWD_W"
KINDS: tuple[tuple[str, ...], ...] = (("f32", "NXC"), ("f32", "NCX"), ("bf16", "NXC"), ("f16", "NCX"))
WORDS = ("roles", "types", "layouts", "auto_pad", "pads_end", "output_padding", "view", *VALUES)

_CHOICE = re.compile(r"\{(\w+)=([\w,]+)\}")


@cache
def cases(name: str) -> tuple[Case, ...]:
    """Return the cases of a collection. Each case is checked, and its ``why`` says why it is hard.

    Raises NotationError if no collection has the name.

    >>> cases("hard")[0].name
    'pytorch-50042-23.Convolution.f32.NXC'
    """
    if name not in NAMES:
        raise NotationError(f"the collections are {', '.join(NAMES)}; got {name!r:.200}")
    text = (resources.files("convgrad.verify.cases") / "collections" / f"{name}.txt").read_text(encoding="utf-8")
    lines = enumerate(text.splitlines(), 1)
    return tuple(case for number, line in lines for case in read(line, f"collection {name}, line {number}"))


def read(line: str, place: str) -> Iterator[Case]:
    """Yield the cases of a line of a collection. An empty line or a comment has no case.

    >>> line = "thin-{c=1,3} mb1ic{c}ih5oc4kh3ph1 roles=BWD_W types=f32 layouts=NCX  # few channels"
    >>> [(case.name, case.shapes[0]) for case in read(line, "here")][1]
    ('thin-3.ConvolutionBackwardWeights.f32.NCX', (1, 3, 5, 5))
    """
    text, _, why = line.partition("#")
    for words in map(str.split, _expanded(text)):
        deconv = words[1] == "deconv"
        options = dict(word.split("=", 1) for word in words[2 + deconv :])
        if not why.strip() or not options.keys() <= set(WORDS) or options.get("view", "strided") not in VIEWS:
            wanted = f"NAME [deconv] DESCRIPTOR [WORD=VALUE]... # why, with the words {', '.join(WORDS)}"
            raise NotationError(f"{place}: a line of a collection is {wanted}; got {line!r:.200}")
        yield from _cases(words[0], words[1 : 2 + deconv], options, place, why.strip())


def _expanded(text: str) -> Iterator[str]:
    """Yield a line with each combination of its choices; yield nothing if the line has no words."""
    choices_ = {name: values.split(",") for name, values in _CHOICE.findall(text)}
    template = _CHOICE.sub(r"{\1}", text)
    for values in product(*choices_.values()) if text.strip() else ():
        yield template.format(**dict(zip(choices_, values, strict=True)))


def _cases(name: str, geometry: list[str], options: Mapping[str, str], place: str, why: str) -> Iterator[Case]:
    kinds = KINDS
    if "types" in options or "layouts" in options:
        types, layouts = options.get("types", "f32,bf16,f16"), options.get("layouts", "NXC,NCX")
        kinds = tuple(product(types.split(","), layouts.split(",")))
    *deconv, descriptor = geometry
    for direction, (type_name, layout) in product(options.get("roles", DIRECTIONS).split(","), kinds):
        line = " ".join([*deconv, direction, type_name, layout, descriptor])
        for call in notation.calls(notation.read(line)):
            attributes = _attributes(call, options)
            op, problem = problem_from_shapes(call.operator, call.shapes, attributes, call.format)
            if {options[word] for word in VALUES if word in options} <= set(problem.operands):
                title = f"{name}.{call.operator}.{type_name}.{layout.replace(':', '-')}"
                shapes = tuple(s for port, s in zip(op.operands, call.shapes, strict=False) if not port.is_shape)
                arrays = partial(strange, problem, shapes, options, zlib.crc32(title.encode()))
                brings = arrays if options.keys() & {"view", *VALUES} else None
                yield Case(title, place, call.operator, call.shapes, attributes, call.format, call.format, brings, why)


def _attributes(call: OperatorCall, options: Mapping[str, str]) -> dict[str, object]:
    """Return a call's attributes after the line's options are applied. auto_pad replaces the descriptor's pads."""
    attributes = dict(call.attributes)
    if "auto_pad" in options:
        for name in ("pads_begin", "pads_end", "output_padding"):
            attributes.pop(name, None)
        attributes["auto_pad"] = options["auto_pad"]
    for name in ("pads_end", "output_padding"):
        if name in options:
            attributes[name] = [int(value) for value in options[name].split(",")]
    return {name: value for name, value in attributes.items() if value is not None}
