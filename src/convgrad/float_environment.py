"""The floating-point environment of a thread: rounding, flushing of denormals, and traps, which programs may change.

Kernels set the default environment themselves. Python code whose results must not depend on the caller's environment
runs under ``in_default_environment``: code that generates, chooses or compiles kernels, and code that computes with
NumPy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_Saved = ctypes.c_uint64 * 8  # larger than ``fenv_t`` of any C library
_LIBRARIES = (None, "libm.so.6")  # symbols that the process has loaded, which include those of libm almost always


class _Fenv(NamedTuple):
    """Functions of C's <fenv.h>, which pass an environment by its address, and the default environment."""

    get: Callable[[Any], int]
    set: Callable[[Any], int]
    default: object


def _fenv() -> _Fenv | None:
    """Return the functions of the C library; None on systems whose default environment is unknown here."""
    if sys.platform not in ("linux", "darwin"):
        return None
    for name in _LIBRARIES:
        try:
            library = ctypes.PyDLL(name)  # PyDLL keeps the interpreter's lock, which makes calls fast
            get, put = library.fegetenv, library.fesetenv
        except (OSError, AttributeError):
            continue
        get.argtypes = put.argtypes = [ctypes.c_void_p]
        # FE_DFL_ENV, as the headers define it
        default = ctypes.addressof(_Saved.in_dll(library, "_FE_DFL_ENV")) if sys.platform == "darwin" else -1
        return _Fenv(get, put, default)
    return None


_ENVIRONMENT = _fenv()


class _InDefaultEnvironment(Generic[Parameters, Result]):
    """A function that runs in the default environment. It has the module of the function, so doctests are found."""

    __wrapped__: Callable[Parameters, Result]

    def __init__(self, function: Callable[Parameters, Result], fenv: _Fenv) -> None:
        update_wrapper(self, function)
        self._function, self._fenv = function, fenv

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        get, put, default = self._fenv
        saved = _Saved()
        get(saved)
        try:
            put(default)
            return self._function(*args, **kwargs)
        finally:
            put(saved)

    def __get__(self, instance: object, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> str:
        """Pickle only the name, as functions are pickled."""
        name: str = self.__wrapped__.__qualname__
        return name


def in_default_environment(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that runs in the default floating-point environment, and then restores the caller's.

    The default rounds to nearest, keeps denormals and traps nothing. In other environments, even ``2.0**14`` and
    NumPy's conversions give other numbers.
    """
    return function if _ENVIRONMENT is None else _InDefaultEnvironment(function, _ENVIRONMENT)
