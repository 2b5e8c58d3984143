"""Readers of a checkpoint's head that check every value, because the hash proves only that the file is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

from convgrad.functional.partials import SUMMED
from convgrad.scale.finished import FinishedPart, Place
from convgrad.scale.identity import Words
from convgrad.spec.image_cuts import blocks_of
from convgrad.spec.pieces import leaf_images, nodes_of
from convgrad.spec.problem import Problem
from convgrad.spec.subproblems import positions

NAMES = ("identity", "images", "rows", "sums", "out")
CRCS = 1 << 32


class Misfit(Exception):
    """The error that a head has values that no call in pieces saves."""


def written(
    identity: Words, place: Place, sums: tuple[int, int], parts: Sequence[FinishedPart]
) -> Mapping[str, object]:
    """Return the head of a checkpoint. ``sums`` are the numbers of image sums and of row sums in the file."""
    return dict(zip(NAMES, (dict(identity), *place, list(sums), [list(part) for part in parts]), strict=True))


def identity_in(head: object) -> Words:
    """Return the texts in a head that identify its call, or raise Misfit."""
    if not isinstance(head, dict) or set(head) != set(NAMES):
        raise Misfit(f"it must have {', '.join(NAMES)}; got {_names(head)}")
    words = head["identity"]
    if not isinstance(words, dict) or not all(isinstance(word, str) for word in words.values()):
        raise Misfit("identity must be an object of strings")
    return words


def place_in(head: Mapping[str, object], problem: Problem) -> Place:
    """Return the finished images and rows in a head, or raise Misfit if the problem does not have so many."""
    images, rows = (_number(head[name], name) for name in ("images", "rows"))
    batch, height = problem.geometry.batch, next(iter(positions(problem)), 0)
    if images > batch or rows >= max(1, height) or (rows and images == batch):
        raise Misfit(f"{images} images and {rows} rows of the next are not a part of {batch} images of {height} rows")
    return images, rows


def sums_in(head: Mapping[str, object], problem: Problem, place: Place, sizes: Sequence[int]) -> int:
    """Return how many arrays are sums of images; the other arrays are sums of rows. ``sizes`` has a size per array."""
    of_images, of_rows = _sums_of(problem, place)
    if _list(head["sums"], "sums") != [of_images, of_rows]:
        raise Misfit(f"sums must be {[of_images, of_rows]} at this place; got {_short(head['sums'])}")
    array_size = prod(problem.output_shape)
    if list(sizes) != [array_size] * (of_images + of_rows):
        raise Misfit(
            f"there must be {of_images + of_rows} arrays of {array_size} numbers; got {len(sizes)} of {set(sizes)}"
        )
    return of_images


def _sums_of(problem: Problem, place: Place) -> tuple[int, int]:
    """Return the numbers of image sums and row sums at a place. Raise Misfit if no call saves a state at this place."""
    if problem.solves_for not in SUMMED:
        return 0, 0
    images, rows = place
    leaf = leaf_images(problem.geometry)
    if (images % leaf and images != problem.geometry.batch) or (rows and leaf > 1):
        raise Misfit(f"{images} images and {rows} rows of the next end within a leaf, of {leaf} images")
    of_rows = 0
    if rows:
        try:
            of_rows = len(nodes_of(0, blocks_of(positions(problem), range(rows)).stop))
        except ValueError as error:
            raise Misfit(str(error)) from None
    return len(nodes_of(0, -(-images // leaf))), of_rows


def parts_in(head: Mapping[str, object], problem: Problem, place: Place, has_out: bool) -> list[FinishedPart]:
    """Return the finished parts of ``out``, or raise Misfit if these are not adjacent or do not end at ``place``."""
    parts = []
    for listed in _list(head["out"], "out"):
        if len(numbers := _list(listed, "a part of out")) != len(FinishedPart._fields):
            raise Misfit(f"a part of out must have {', '.join(FinishedPart._fields)}; got {_short(listed)}")
        parts.append(FinishedPart(*(_number(number, "a number of out") for number in numbers)))
    ends = [(0, 0), *(part.end for part in parts)]
    height = next(iter(positions(problem)), 0)
    if ends[-1] != (place if has_out else (0, 0)) or any(end >= next_end for end, next_end in pairwise(ends)):
        raise Misfit("the parts of out must follow one another up to the finished place")
    if any(part.rows >= max(1, height) or part.crc >= CRCS for part in parts):
        raise Misfit("a part of out must end within an image, and have a CRC-32")
    return parts


def _number(value: object, name: str) -> int:
    if type(value) is not int or value < 0:
        raise Misfit(f"{name} must be an integer of at least 0; got {_short(value)}")
    return value


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise Misfit(f"{name} must be a list; got {_short(value)}")
    return value


def _names(head: object) -> str:
    return _short(", ".join(head)) if isinstance(head, dict) else _short(head)


def _short(value: object) -> str:
    """Return a value as a text of at most 60 characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
