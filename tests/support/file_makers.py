"""Files as they should not be: damaged, hostile, of another kind, or not ours to read."""

from __future__ import annotations

import importlib.util
import io
import os
import socket
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from convgrad import files

NOBODY = 65534
# The kinds of files that can be read and written with what is installed.
KINDS = [kind for kind in files.KINDS if kind != ".pt" or importlib.util.find_spec("torch")]
KINDS = [kind for kind in KINDS if not files.KINDS[kind].is_folder]
ONES = np.ones((2, 3), np.float32)
ESCAPE = "\x1b[31mred\x1b]0;title\x07"
LONG = "n" * 300


def npy(array: NDArray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape: str, version: int = 1) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text.encode()


def zipped(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytearray:
    buffer = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:  # a name that stands there already is a warning
            archive.writestr(name, data)
    return bytearray(buffer.getvalue())


def rewritten(raw: bytearray, local: int, central: int, value: bytes) -> bytes:
    """Overwrite a field of every member, in both places that hold it."""
    for signature, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        at = raw.find(signature)
        while at >= 0:
            raw[at + offset : at + offset + len(value)] = value
            at = raw.find(signature, at + 1)
    return bytes(raw)


def claiming(name: str, data: bytes, claim: int, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    return rewritten(zipped([(name, data)], method), 22, 24, struct.pack("<I", claim))


def safetensors(header_text: str, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header_text.encode())) + header_text.encode() + data


def tensor(key: str) -> str:
    return f'"{key}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'


WHOLE = zipped([("a.npy", npy(ONES))])
ZEROS = npy(np.zeros(1 << 18, np.float32))  # 1 MiB, deflated to a thousandth
CONTENTS: dict[str, bytes] = {
    "a.npy": npy(ONES),
    "flat.npy": npy(np.ones(3, np.float32)),
    "text.npy": b"hello, this is no array at all",
    "truncated.npz": bytes(WHOLE[:-30]),
    "damaged.npz": bytes(WHOLE[:60]) + b"xxxx" + bytes(WHOLE[64:]),
    "encrypted.npz": rewritten(bytearray(WHOLE), 6, 8, struct.pack("<H", 1)),
    "method.npz": rewritten(bytearray(WHOLE), 8, 10, struct.pack("<H", 98)),
    "lzma.npz": bytes(zipped([("a.npy", npy(ONES))], zipfile.ZIP_LZMA)),
    "twice.npz": bytes(zipped([("a.npy", npy(ONES)), ("b.npy", npy(ONES)), ("b.npy", npy(ONES))])),
    "notes.npz": bytes(zipped([("a.npy", npy(ONES)), ("notes.txt", b"read me")])),
    "two.npz": bytes(zipped([("a.npy", npy(ONES)), ("b.npy", npy(ONES))])),
    "escape.npz": bytes(zipped([(f"{ESCAPE}.npy", npy(ONES)), ("b.npy", npy(ONES))])),
    "bomb.npz": bytes(zipped([(f"{key}.npy", ZEROS) for key in range(10)])),
    "stored.npz": claiming("a.npy", header("(400000000,)"), 1_600_000_128, zipfile.ZIP_STORED),
    "short.safetensors": safetensors("{" + tensor("a") + "}", b"12"),
    "escape.safetensors": safetensors('{"\\u001b[31mred":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                                      '"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', b"12345678"),
    "text.json": b"hello",
    "bytes.json": b'{"graph": "\xff"}',
    "lines.txt": b"BWD_W f32 NXC ic3oc3",
    "none.txt": b"# nothing",
    "bytes.txt": b"\xff\xff",
}  # fmt: skip


def fill(directory: Path) -> None:
    """Make all of them, and what is no regular file: FIFOs, links to devices and to themselves, a socket."""
    for name, content in CONTENTS.items():
        (directory / name).write_bytes(content)
    for ending in ("npy", "npz", "safetensors", "json", "csv"):
        os.mkfifo(directory / f"fifo.{ending}")
        (directory / f"zero.{ending}").symlink_to("/dev/zero")
        (directory / f"loop.{ending}").symlink_to(f"loop.{ending}")
        (directory / f"dir.{ending}").mkdir()
    for ending in ("npy", "json"):
        (directory / f"secret.{ending}").write_bytes(b"")
        (directory / f"secret.{ending}").chmod(0)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(directory / "socket.npy"))
    (directory / "closed").mkdir(mode=0o555)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be somebody whom permissions bind, where we are the superuser, whom they do not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
