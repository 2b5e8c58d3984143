"""benchdnn's lists and option files: descriptors and options (knobs).

Each descriptor gives a case for every combination of the current values of the knobs. A knob keeps its values until it
is given again or until ``--reset``. ``--batch=FILE`` reads another file at this point. FILE is relative to the folder
of the file with this knob. Words are separated by white space. If a backslash ends a line, the first word of the next
line continues the last word, unless it begins a knob or a descriptor. Before the first ``--dir`` or ``--reset``, each
descriptor is run for its gradients, BWD_D and BWD_WB, because a bare list has no direction of its own. benchdnn itself
runs FWD_B.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from convgrad.descriptor import Descriptor, read_descriptor
from convgrad.errors import ConvgradError, FileError, NotationError
from convgrad.formats import F32, F64, FORMATS, Format
from convgrad.graph.limits import Limits
from convgrad.notation import Line
from convgrad.spec.operators import CONV_WEIGHTS, TRANSPOSE_WEIGHTS
from convgrad.verify.cases.case import Case, Reading
from convgrad.verify.cases.descriptors import cases_of, name_of, text_of_problem
from convgrad.verify.cases.knobs import (
    ATTRIBUTES,
    DEFAULTS,
    HARMLESS,
    UNDEF,
    Expression,
    Values,
    expression_of,
    values_of,
)
from convgrad.verify.cases.place import Place, TextLine, Word, lines_of, text_of
from convgrad.verify.cases.tags import ANY, data_format, weights_format

GRADIENTS = ("BWD_D", "BWD_WB")  # the directions of a bare list
# The numbers, within src:wei:dst, of the tensors that a direction reads, and of the tensor that it computes.
_READS = {"FWD": (0, 1), "BWD_D": (2, 1), "BWD_W": (0, 2)}
_MAKES = {"FWD": 2, "BWD_D": 0, "BWD_W": 1}
OPENING_BYTES = 1 << 10  # opening a file takes about as long as reading so many bytes
_DESCRIPTOR = re.compile(r"_*(g|mb|[io][cdhw]|[ksdp][dhw])\d")


def is_descriptor(word: str) -> bool:
    """Return whether a word begins with a dimension, as a descriptor does.

    >>> is_descriptor("mb1ic3ih8oc4kh3"), is_descriptor("cases.txt")
    (True, False)
    """
    return _DESCRIPTOR.match(word) is not None


def glued(pieces: Sequence[Sequence[Word]]) -> list[Word]:
    """Return the words of a line that backslashes continue. A word that is broken across lines becomes one word."""
    words: list[list[Word]] = []  # each word with its continuations
    for first, *others in pieces:
        begins = first.text.startswith("-") or is_descriptor(first.text)
        if words and not begins:
            words[-1].append(first)
        else:
            words.append([first])
        words += [[word] for word in others]
    return [replace(parts[0], text="".join(part.text for part in parts)) for parts in words]


@dataclass
class Reader:
    """A reader of lines and its state: the driver, the current values of knobs, and the files that are being read."""

    limits: Limits
    folder: Path  # paths of included files are relative to this folder
    within: tuple[Path, ...] = ()
    transposed: bool = False
    knobs: dict[str, Values] = field(default_factory=lambda: {**DEFAULTS, "dir": GRADIENTS})
    wanted: Expression | None = None  # the expression of --match, which selects problems
    included: int = 0  # the bytes of all files that were included so far
    posed: int = 0  # the cases of all descriptors so far, also of those that --match skips

    def read_file(self, path: Path) -> Iterator[Reading]:
        """Yield the cases of an included file. Knobs that the file sets keep their values afterwards."""
        if self.included <= self.limits.file_bytes:  # a file can be included often, and its lines include others
            text = text_of(path, self.limits)
            self.included += len(text) + OPENING_BYTES
        if self.included > self.limits.file_bytes:
            wanted = f"all included files must have at most {self.limits.file_bytes} bytes (file_bytes) together"
            raise FileError(f"{path}: {wanted}; they have more")
        outside = self.folder, self.within
        self.folder, self.within = path.parent, (*self.within, path.resolve())
        for line in lines_of(text, Place(str(path))):
            yield from self.read_line(line)
        self.folder, self.within = outside

    def read_line(self, line: TextLine) -> Iterator[Reading]:
        """Yield the cases of a line's descriptors. For each word that cannot be read, yield its error.

        A knob that cannot be read changes nothing.
        """
        for word in glued(line.pieces):
            try:
                if word.text.startswith("--batch="):
                    yield from self.read_file(self._included(word))
                elif word.text.startswith("-"):
                    with word.place.named():
                        self._set(word.text)
                else:
                    with word.place.named():
                        yield from self._cases(word)
            except ConvgradError as error:
                yield error

    def _set(self, word: str) -> None:
        name, equals, text = word.removeprefix("--").partition("=")
        if re.fullmatch(r"-v\d+", word) or name in HARMLESS:
            return
        if not word.startswith("--"):
            raise NotationError(f"a knob begins with --; got {word!r:.80}")
        if name in ("conv", "deconv") and not equals:
            self.transposed = name == "deconv"
        elif name == "reset" and not equals:
            self.knobs, self.wanted = dict(DEFAULTS), None
        elif name == "match":
            self.wanted = expression_of(text)
        else:
            key, values = values_of(name, text)
            self.knobs[key] = values

    def _included(self, word: Word) -> Path:
        path = self.folder / word.text.partition("=")[2]
        try:
            there, again = path.is_file(), path.resolve() in self.within
        except (OSError, ValueError):  # a text that no file can have as its name
            there = again = False
        if again:
            raise word.place.refuse(f"a file must not include itself, directly or indirectly; got {path!s:.200}")
        if len(self.within) >= self.limits.nesting:
            raise word.place.refuse(f"files must be nested at most {self.limits.nesting} deep (nesting)")
        if not there:
            raise word.place.refuse(
                f"--batch must name an existing file, relative to this file's folder; got {path!s:.200}"
            )
        return path

    def _cases(self, word: Word) -> Iterator[Case]:
        descriptor = read_descriptor(word.text, self.transposed, strict=word.place.typed)
        self.posed += prod(map(len, self.knobs.values()))
        if self.posed > self.limits.cases:
            wanted = f"descriptors with the values of their knobs must be at most {self.limits.cases} cases (cases)"
            raise word.place.refuse(f"{wanted}; with this one they are {self.posed}")
        yielded: set[tuple[object, ...]] = set()  # "any" and the tag that replaces it give the same problem
        for values in product(*self.knobs.values()):
            chosen = dict(zip(self.knobs, values, strict=True))
            of_batch = replace(descriptor, batch=chosen["mb"] or descriptor.batch)
            if self.wanted and not self.wanted.search(_words_of(of_batch, self.transposed, chosen)):
                continue
            for case in _chosen(of_batch, self.transposed, chosen, word.place):
                alike = case.name, case.operand_format, case.output_format, case.unsupported
                if alike not in yielded:
                    yielded.add(alike)
                    yield case


def _words_of(d: Descriptor, transposed: bool, knobs: dict[str, Any]) -> str:
    """Return the problem as benchdnn prints it: non-default knobs and the descriptor. --match searches this text.

    >>> _words_of(read_descriptor("ic4ih6oc6kh3ph1"), False, {"dir": "BWD_W", "dt": ("f32",) * 3, "mb": 0})
    '--dir=BWD_W ic4ih6oc6oh6kh3ph1'
    """
    said = {name: value for name, value in knobs.items() if name != "mb" and value not in DEFAULTS.get(name, ("",))}
    if "dt" in said:
        said["dt"] = _types(said["dt"])
    words = [f"--{name}={value}" for name, value in said.items()]
    return " ".join([*words, text_of_problem(d, transposed).replace("mb2ic", "ic", 1)])


def _types(names: Sequence[str], between: str = ":") -> str:
    return names[0] if len(set(names)) == 1 else between.join(names)


def _chosen(d: Descriptor, transposed: bool, knobs: dict[str, Any], place: Place) -> list[Case]:
    """Return the cases of a descriptor for one value of each knob, or an unsupported case with the reason."""
    direction = knobs["dir"]
    direction_kind = direction[:5] if direction.startswith("BWD") else "FWD"
    if knobs["bia-dt"] != UNDEF and direction in ("FWD_D", "FWD_I", "BWD_W"):
        direction = {"BWD_W": "BWD_WB"}.get(direction, "FWD_B")
    types = knobs["dt"]
    said = _types(types, "-")
    reads, makes = [types[at] for at in _READS[direction_kind]], types[_MAKES[direction_kind]]
    why = _why_types(reads, makes) or _why_attributes(knobs)
    data, weights = _layouts(d, transposed, knobs)
    if not why and not (data and weights):
        tags = ", ".join(f"{knobs[name]:.60}" for name in ("stag", "wtag", "dtag"))
        why = f"layouts {tags} of src, weights and dst are not supported"
    operands = FORMATS.get(reads[0], F32)
    line = Line(transposed, direction, operands, data or "NCX", weights or "OIX", d)
    if why:
        return [Case(f"{name_of(line, said)}_unsupported", str(place), "", (), {}, operands, operands, unsupported=why)]
    return cases_of(line, place, FORMATS[makes], _of_bias(knobs["bia-dt"], operands), said)


def _why_types(reads: Sequence[str], makes: str) -> str:
    foreign = [name for name in (*reads, makes) if name not in FORMATS]
    if foreign:
        return f"type {foreign[0]} is not supported; {', '.join(FORMATS)} are"
    if len(set(reads)) > 1:
        return f"operands of two types, {' and '.join(reads)}, are not supported"
    if (reads[0] == "f64") != (makes == "f64"):
        return f"a result in {makes} of operands in {reads[0]} is not supported"
    return ""


def _why_attributes(knobs: dict[str, Any]) -> str:
    for name, values in ATTRIBUTES.items():
        if knobs.get(name, "") not in values:
            return f"--{name}={knobs[name]:.100} is not supported"
    if knobs["strides"].strip(":"):
        return f"--strides={knobs['strides']:.100} is not supported"
    return ""


def _layouts(d: Descriptor, transposed: bool, knobs: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return the data format and the weights format that the tags mean, or None for a layout without a format.

    The tag "any" has the format of the other tags, or NCX if all tags are "any".
    """
    axes = len(d.axes)
    tags = [tag for tag in (knobs["stag"], knobs["dtag"]) if tag not in (ANY, UNDEF)]
    formats = {data_format(tag, axes) for tag in tags} or {"NCX"}
    data = formats.pop() if len(formats) == 1 else None
    if knobs["wtag"] in (ANY, UNDEF):
        return data, (TRANSPOSE_WEIGHTS if transposed else CONV_WEIGHTS)[data == "NCX"]
    return data, weights_format(knobs["wtag"], axes, d.groups, transposed)


def _of_bias(name: str, operands: Format) -> Format:
    """Return the format ``name`` of a bias gradient. If it is not a format, return f64 for f64 operands, else f32."""
    return FORMATS.get(name, F64 if operands is F64 else F32)
