"""XLA's structures lie where the header that comes with JAX has them; frames of newer versions are understood."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from ctypes import pointer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax")

import jaxlib

from convgrad.jax import frame, handler

HEADER = Path(jaxlib.__file__).parent / "include" / "xla" / "ffi" / "api" / "c_api.h"
NAMES = {
    "XLA_FFI_Api_Version": frame.Version,
    "XLA_FFI_Error_Create_Args": frame.ErrorArguments,
    "XLA_FFI_Api": frame.Api,
    "XLA_FFI_Metadata": frame.Metadata,
    "XLA_FFI_Metadata_Extension": frame.Extension,
    "XLA_FFI_ByteSpan": frame.Span,
    "XLA_FFI_Buffer": frame.Buffer,
    "XLA_FFI_Args": frame.Buffers,
    "XLA_FFI_Rets": frame.Buffers,
    "XLA_FFI_Attrs": frame.FfiAttributes,
    "XLA_FFI_CallFrame": frame.Frame,
}
WORDS = {"size_t": 8, "int64_t": 8, "int": 4, "uint32_t": 4, "XLA_FFI_Handler_Traits": 4}


def leaves(text: str, name: str) -> Iterator[int]:
    """Yield the sizes of what a structure of the header holds, those within it opened; each is aligned to its size."""
    (body,) = re.findall(rf"struct {name} {{(.*?)^}}", text, re.MULTILINE | re.DOTALL)
    for declared in re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"\1* \1", body).split(";")[:-1]:
        kind = declared.split()[-2]
        if "*" in declared:
            yield 8
        elif kind in WORDS or (re.search(rf"^}} {kind};", text, re.MULTILINE) and f"struct {kind} " not in text):
            yield WORDS.get(kind, 4)  # an enum is an int
        else:
            yield from leaves(text, kind)


def ours(structure: Any) -> Iterator[tuple[int, int]]:
    """Yield where each leaf of one of our structures lies, and its size."""
    for name, kind, *_ in structure._fields_:
        at = getattr(structure, name)
        inner = ours(kind) if issubclass(kind, ctypes.Structure) else [(0, at.size)]
        yield from ((at.offset + begin, size) for begin, size in inner)


@pytest.mark.parametrize("name", NAMES)
def test_structures_lie_as_the_header_has_them(name: str) -> None:
    text = re.sub(r"//.*", "", HEADER.read_text(encoding="utf-8"))
    end, expected = 0, []
    for size in leaves(text, name):
        begin = -(-end // size) * size
        expected.append((begin, size))
        end = begin + size
    known = [*ours(NAMES[name])]
    assert known == expected[: len(known)]
    assert len(known) == len(expected) or name in ("XLA_FFI_Api", "XLA_FFI_Metadata", "XLA_FFI_CallFrame")


def test_codes_are_those_of_the_header() -> None:
    text = HEADER.read_text(encoding="utf-8")
    for name, code in {
        "Extension_Metadata": frame.METADATA,
        "Error_Code_CANCELLED": frame.CANCELLED,
        "Error_Code_INTERNAL": frame.INTERNAL,
    }.items():
        assert f"XLA_FFI_{name} = {code}," in text
    assert f"#define XLA_FFI_API_MAJOR {frame.MAJOR}\n" in text


@pytest.mark.parametrize(
    ("theirs", "answer"), [((0, 1), (0, 1)), ((0, 3), (0, 3)), ((0, 9), (0, 3)), ((1, 0), (0, 3)), (None, (0, 1))]
)
@pytest.mark.parametrize("before", [0, 2])
def test_the_version_is_ours_or_an_older_one_that_xla_has(
    theirs: tuple[int, int] | None, answer: tuple[int, int], before: int
) -> None:
    """Whatever extensions of newer versions come before the question."""
    metadata = frame.Metadata()
    size = ctypes.sizeof(frame.Extension)
    asked = pointer(frame.Extension(size, frame.METADATA, None, pointer(metadata)))
    for _ in range(before):
        asked = pointer(frame.Extension(size, frame.METADATA + 1, asked, None))
    api = pointer(frame.Api(version=frame.Version(0, None, *theirs))) if theirs else None
    assert handler.answer(pointer(frame.Frame(extension=asked, api=api))) is None
    assert (metadata.version.major, metadata.version.minor) == answer
    assert metadata.traits == 0
