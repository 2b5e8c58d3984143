"""The operators' layout that fits the axis order of most arrays, and the transposition of the other arrays.

Each axis of an array has a letter: n and c for data, o and i for weights, in the terms of the underlying convolution.
Spatial axes have digits, or the letters d, h and w, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convgrad.spec.layouts import axis_order, from_canonical

DATA, WEIGHTS, TRANSPOSED = ("NCX", "NXC"), ("OIX", "XIO"), ("IOX", "XOI")
_OUTER = frozenset("ncoi")


@dataclass(frozen=True)
class Lying:
    """The common format of some tensors of a call, with a note for each tensor that must be transposed to it."""

    format: str
    notes: tuple[str, ...] = ()

    def shape(self, canonical: Sequence[int]) -> tuple[int, ...]:
        """Return a canonical shape in the format's order of axes."""
        return from_canonical(canonical, self.format)


def lying(tensors: Mapping[str, str], formats: Sequence[str] = DATA, spelled: Mapping[str, str] | None = None) -> Lying:
    """Return the format that most tensors have, or the first of these formats. ``tensors`` maps names to axes' letters.

    ``spelled`` maps names to the letters that the notes use, as the case's notation writes them.

    >>> lying({"src": "n01c", "dst": "n01c"})
    Lying(format='NXC', notes=())
    >>> lying({"weights": "o01i"}, WEIGHTS).notes
    ('weights are those of the line, o01i, transposed by (0, 3, 1, 2)',)
    """
    letters = {name: _letters(axes, formats[0]) for name, axes in tensors.items()}
    fits = {f: [name for name, axes in tensors.items() if _in_format(letters[name], f) == axes] for f in formats}
    best = max(formats, key=lambda f: len(fits[f]))
    notes = []
    for name, axes in tensors.items():
        if name not in fits[best]:
            order = tuple(axes.index(letter) for letter in _in_format(letters[name], best))
            verb = "are those" if name.endswith("weights") else "is that"
            notes.append(f"{name} {verb} of the line, {(spelled or tensors)[name]}, transposed by {order}")
    return Lying(best, tuple(notes))


def _letters(axes: str, fmt: str) -> str:
    """Return the letters of an array's axes in canonical order."""
    outer = "nc" if fmt in DATA else "oi"
    return outer + "".join(sorted(set(axes) - _OUTER))


def _in_format(canonical: str, fmt: str) -> str:
    order = axis_order(fmt, len(canonical))
    letters = [""] * len(canonical)
    for letter, axis in zip(canonical, order, strict=True):
        letters[axis] = letter
    return "".join(letters)
