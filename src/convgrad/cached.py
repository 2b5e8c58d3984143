"""Properties that are computed once per object, without a lock, and results that are kept by values and their types."""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")
_NO_REFERENCES = 2  # the version of marshal's format in which equal values of the same types have the same bytes


class cached_property(Generic[Value]):
    """A property that is computed at its first use and then kept in the object's ``__dict__``.

    ``functools.cached_property`` of Python 3.11 holds a lock of the class while it computes. A child that is forked
    meanwhile would wait for this lock forever. Without the lock, two threads may compute a value at once; all get the
    first one that was kept.
    """

    def __init__(self, function: Callable[[Any], Value]) -> None:
        self._function, self._name = function, function.__name__
        self.__doc__, self.__module__ = function.__doc__, function.__module__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object, owner: type) -> cached_property[Value] | Value:
        if instance is None:
            return self
        value: Value = instance.__dict__.setdefault(self._name, self._function(instance))
        return value


def remembered(maxsize: int, of_caller: slice) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Return a decorator like ``lru_cache`` for functions that check arguments ``of_caller``, which users pass.

    These arguments are numbers, and tuples of numbers. 2, 2.0 and True are equal to 2, 2 and 1, but are not the same to
    the checks. With ``lru_cache``, a call with 2.0 would be accepted after one with 2.
    """

    def decorate(function: Callable[..., Value]) -> Callable[..., Value]:
        @lru_cache(maxsize)
        def known(key: object, *args: Any) -> Value:
            return function(*args)

        @wraps(function)
        def call(*args: Any) -> Value:
            return known(exactly(args[of_caller]), *args)

        call.cache_clear = known.cache_clear  # type: ignore[attr-defined]
        return call

    return decorate


def exactly(values: tuple[Any, ...]) -> object:
    """Return a key that is equal only for equal values of the same types: numbers, and tuples of numbers.

    >>> exactly((1, (2, 3))) == exactly((1, (2, 3))), exactly((1, (2, 3))) == exactly((1, (2.0, 3)))
    (True, False)
    """
    try:
        return marshal.dumps(values, _NO_REFERENCES)  # a quarter of the time of the types
    except ValueError:  # a type that marshal does not know
        return tuple([(type(value), exactly(value) if isinstance(value, tuple) else value) for value in values])
