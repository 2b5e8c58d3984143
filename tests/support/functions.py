"""The compiled code of functions, which workers, children and later runs share by files.

To compile takes a quarter of the time of the quick tier. But most functions are those of the last run, and kernels of
different processes have many functions in common, although they are not whole kernels of the session's kernel cache.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from convgrad.engines.llvm import jit

FOLDER = "CONVGRAD_TESTS_FUNCTIONS"
MOST_FILES = 50_000  # 200 MB


def prepare_folder(root: Path) -> None:
    """Make the folder of this compiler, tell workers and children of it, and remove those of others.

    The name is a digest of what makes code of a text beside the text: the version of LLVM, and how it is called.
    """
    compiler = [one.version for one in metadata.distributions(name="llvmlite")], inspect.getsource(jit)
    folder = root / hashlib.sha256(repr(compiler).encode()).hexdigest()[:16]
    full = folder.is_dir() and len(os.listdir(folder)) > MOST_FILES
    for other in root.iterdir():
        if full or other != folder:
            shutil.rmtree(other, ignore_errors=True)
    folder.mkdir(exist_ok=True)
    os.environ[FOLDER] = str(folder)


def share_functions() -> None:
    """Let the compiler of this process forget no function, and share functions if there is a folder."""
    jit.FUNCTIONS = 1 << 16  # tests return to kernels whose functions the compiler would have forgotten
    if FOLDER in os.environ:
        jit._linker.compiled = _SharedFunctions(Path(os.environ[FOLDER]))


class _SharedFunctions(dict[bytes, bytes]):
    """Code by the digests of texts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, digest: bytes, default: Any = None) -> Any:
        if digest not in self:
            with suppress(FileNotFoundError):
                self[digest] = (self.folder / digest.hex()).read_bytes()
        return super().get(digest, default)

    def update(self, objects: Any) -> None:  # type: ignore[override]
        with suppress(OSError):  # such as of a test that limits the sizes of files
            for digest in objects.keys() - self.keys():
                written = self.folder / f"{digest.hex()}.{os.getpid()}"
                written.write_bytes(objects[digest])
                written.replace(self.folder / digest.hex())
        super().update(objects)
