"""The frame by which XLA calls a foreign function: its structures, as version 0.x of its C interface lays them out.

Nothing here is JAX's: a frame points at the operands' and the result's memory, and no array is made of them.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p, sizeof
from typing import Any

MAJOR, MINOR = 0, 3  # the interface that these structures are of: a higher minor one may only add behind their ends
OLDEST = 1  # where XLA does not tell its own when it asks
METADATA = 1  # the extension by which XLA asks a handler for its version, instead of calling it
CANCELLED, INTERNAL = 1, 13  # codes of errors


class Version(Structure):
    """XLA_FFI_Api_Version."""

    _fields_ = [("struct_size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class ErrorArguments(Structure):
    """XLA_FFI_Error_Create_Args."""

    _fields_ = [("struct_size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int)]


_make_error = ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorArguments))


class Api(Structure):
    """XLA_FFI_Api, as far as it is needed."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("version", Version),
        ("internal", c_void_p),
        ("make_error", _make_error),
    ]


class Metadata(Structure):
    """XLA_FFI_Metadata, as far as it is needed."""

    _fields_ = [("struct_size", c_size_t), ("version", Version), ("traits", c_uint32)]


class Extension(Structure):
    """XLA_FFI_Extension_Base, and what follows it where it is of METADATA."""


Extension._fields_ = [
    ("struct_size", c_size_t),
    ("type", c_int),
    ("next", POINTER(Extension)),
    ("metadata", POINTER(Metadata)),
]


class Span(Structure):
    """XLA_FFI_ByteSpan: a text."""

    _fields_ = [("begin", c_void_p), ("size", c_size_t)]


class Buffer(Structure):
    """XLA_FFI_Buffer."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class Buffers(Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("each", POINTER(POINTER(Buffer))),
    ]


class Attributes(Structure):
    """XLA_FFI_Attrs, all of which are texts here."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("each", POINTER(POINTER(Span))),
    ]


class Frame(Structure):
    """XLA_FFI_CallFrame."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", POINTER(Extension)),
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("operands", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    ]


Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))  # takes the GIL, on whichever thread XLA calls it


def asks_version(frame: Any) -> bool:
    """Tell whether XLA asks for the handler's version, and answer if so: it refuses the one that it does not support.

    An older minor version has all that is used here, so the answer is then its own.
    """
    extension = frame.extension
    while extension and extension.contents.type != METADATA:
        extension = extension.contents.next
    if not extension:
        return False
    theirs = frame.api.contents.version if frame.api else Version(major=MAJOR, minor=OLDEST)
    minor = min(theirs.minor, MINOR) if theirs.major == MAJOR else MINOR
    extension.contents.metadata.contents.version = Version(sizeof(Version), None, MAJOR, minor)
    return True


def error(frame: Any, code: int, sentence: str) -> int | None:
    """Return an error for XLA to raise, which owns it from now on."""
    arguments = ErrorArguments(sizeof(ErrorArguments), None, sentence.encode(), code)
    address: int | None = frame.api.contents.make_error(ctypes.byref(arguments))
    return address
