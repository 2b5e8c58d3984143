"""The weighted sum of per-sample weight or bias gradients, computed for a few images at a time and then joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from operator import add
from typing import Unpack

import numpy as np

from convgrad import arrays, engines
from convgrad.engines.numpy import store_sums
from convgrad.engines.settings import count
from convgrad.float_environment import in_default_environment
from convgrad.functional.call import canonical, check_options, handed_over, prepare, room
from convgrad.functional.join import join
from convgrad.functional.keywords import OutputOptions
from convgrad.functional.partials import partials
from convgrad.functional.types import Array
from convgrad.spec import samples
from convgrad.spec.order import FAN_IN
from convgrad.spec.pieces import leaf_images
from convgrad.spec.problem import Problem, of_images
from convgrad.spec.rules import refuse

BATCH_BYTES = 16 << 20  # largest size of the operands scaled together, if 16 leaves fit


@in_default_environment
def _scales(operator: str, scale: object, problem: Problem) -> Array:
    """Return the scales in the accumulator's format. Raise by rule S1 unless ``scale`` has one value per image."""
    batch, (taken, _) = problem.geometry.batch, arrays.take(scale, operator, "scale")
    if taken.shape != (batch,):  # S1
        refuse("S1", operator, f"scale must have one value per image of src, the shape ({batch},); got {taken.shape}")
    with np.errstate(all="ignore"):
        return taken.astype(problem.operand_format.accumulator.dtype)


def _add(problem: Problem, scaled: Sequence[Array], out: Array, threads: int | None) -> None:
    """Compute the weighted sum of some images into ``out``, or add it to ``out`` if the problem accumulates."""
    part = of_images(problem, len(scaled[0]))
    views = canonical(part, dict(zip(part.operands, scaled, strict=True)))
    engines.execute(part, views, out.view(np.ndarray).transpose(part.output_order), threads)


def _batches(problem: Problem, operands: Sequence[Array]) -> list[slice]:
    """Return slices of images that are scaled together: the largest 16**k leaves (k >= 1) that BATCH_BYTES allow."""
    batch, images = problem.geometry.batch, FAN_IN * leaf_images(problem.geometry)
    image_bytes = sum(prod(array.shape[1:]) for array in operands) * problem.operand_format.itemsize
    while images < batch and images * FAN_IN * image_bytes <= BATCH_BYTES:
        images *= FAN_IN
    return [slice(first, min(first + images, batch)) for first in range(0, max(1, batch), images)]


def _scaled(
    problem: Problem, operands: Sequence[Array], factors: Array, batches: Sequence[slice], threads: int | None
) -> Iterator[tuple[int, list[Array]]]:
    """Yield the first image and the operands of each slice, in the accumulator's format, with one operand scaled.

    The arrays are overwritten in the next step, because all slices use the same memory.
    """
    engine, longest, number = engines.choose(problem).computes, batches[0].stop, samples.scaled_operand(problem)
    scales = [factors if index == number else np.ones(longest, factors.dtype) for index in range(len(operands))]
    rooms = [
        arrays.empty((longest, *array.shape[1:]), factors.dtype)
        if scale is factors or array.dtype != factors.dtype
        else None
        for array, scale in zip(operands, scales, strict=True)
    ]
    for images in batches:
        scaled = []
        for array, scale, memory in zip(operands, scales, rooms, strict=True):
            if memory is None:
                scaled.append(array[images])
                continue
            factor = scale[images] if scale is factors else scale
            scaled.append(memory[: images.stop - images.start])
            engine.scale(np.ascontiguousarray(array[images]), factor, scaled[-1], count(threads))
        yield images.start, scaled


@in_default_environment
def weighted_sum(
    operator: str,
    operands: tuple[object, ...],
    attributes: Mapping[str, object],
    scale: object,
    **options: Unpack[OutputOptions],
) -> Array:
    """Return the sum over n of scale[n] times the gradient of sample n."""
    out, accumulate, threads = options["out"], options["accumulate"], options["threads"]
    check_options(operator, out, accumulate, threads)
    prepared = prepare(operator, operands, attributes, options["dtype"], accumulate, lenient=True)
    factors = _scales(operator, scale, prepared.problem)
    result = room(prepared.problem, out, prepared.taken, aligned=True)
    problem, taken = samples.weighted(prepared.problem), tuple(prepared.taken.values())
    batches = _batches(problem, taken)
    scaled = _scaled(problem, taken, factors, batches, threads)
    if len(batches) == 1:
        _add(problem, next(scaled)[1], result, threads)
    elif not engines.choose(problem).has_order:  # no specified order: add the sums of the slices one after another
        fmt = problem.operand_format
        total, adding = np.zeros(result.shape, fmt.dtype), replace(problem, output_format=fmt, accumulate=True)
        for _, part_operands in scaled:
            _add(adding, part_operands, total, threads)
        store_sums(total, result, problem, None)
    else:
        shape = operands[len(taken) :]
        parts = (
            partials(operator, *part_operands, *shape, first=n, threads=threads, **attributes)
            for n, part_operands in scaled
        )
        join([reduce(add, parts)], dtype=result.dtype, out=result, accumulate=accumulate)
    return handed_over(result, operands[0], out)
