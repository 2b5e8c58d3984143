"""The structures that XLA passes to a foreign function, in version 0.x of XLA's C interface.

The outermost structure is the call frame. It points to the memory of the operands and of the result. This module does
not use JAX.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p, sizeof

MAJOR, MINOR = 0, 3  # the version of these structures; later minor versions may only append fields
OLDEST = 1  # the minor version of an XLA that does not send it
METADATA = 1  # the type of an extension: XLA asks for the handler's version, and not for a result
CANCELLED, INTERNAL = 1, 13  # XLA's error codes


class Version(Structure):
    """XLA_FFI_Api_Version."""

    _fields_ = [("struct_size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class ErrorArguments(Structure):
    """XLA_FFI_Error_Create_Args."""

    _fields_ = [("struct_size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int)]


_make_error = ctypes.CFUNCTYPE(c_void_p, POINTER(ErrorArguments))


class Api(Structure):
    """The leading fields of XLA_FFI_Api."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("version", Version),
        ("internal", c_void_p),
        ("make_error", _make_error),
    ]


class Metadata(Structure):
    """The leading fields of XLA_FFI_Metadata."""

    _fields_ = [("struct_size", c_size_t), ("version", Version), ("traits", c_uint32)]


class Extension(Structure):
    """XLA_FFI_Extension_Base, followed by a field that exists only if the type is METADATA."""


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
        ("pointers", POINTER(POINTER(Buffer))),
    ]


class FfiAttributes(Structure):
    """XLA_FFI_Attrs; all attributes are texts here."""

    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("pointers", POINTER(POINTER(Span))),
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
        ("attributes", FfiAttributes),
    ]


Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(Frame))  # ctypes takes the GIL on the thread that calls the handler


def is_version_query(frame: Frame) -> bool:
    """Return whether XLA asks for the handler's version; if so, write the version into the frame.

    XLA refuses handlers of versions that it does not support. All minor versions have the fields that are used here, so
    the answer to an older XLA is XLA's own version.
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


def error(frame: Frame, code: int, sentence: str) -> int | None:
    """Return the address of a new error. XLA raises the error and frees its memory."""
    arguments = ErrorArguments(sizeof(ErrorArguments), None, sentence.encode(), code)
    address: int | None = frame.api.contents.make_error(ctypes.byref(arguments))
    return address
