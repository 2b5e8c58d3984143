"""Properties that are computed once per object, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


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
