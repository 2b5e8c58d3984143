"""An operator on arrays larger than memory: read, computed and written piece by piece, to the bits of one call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from convgrad.functional.types import DType
from convgrad.scale.call import Call, called
from convgrad.scale.checkpoint import State, checkpoint_of
from convgrad.scale.plan import Plan
from convgrad.scale.prefetch import Waited
from convgrad.scale.progress import Progress, Told, told


def plan(
    operator: str,
    *inputs: object,
    memory: int | str | None = None,
    dtype: DType | None = None,
    out: object = None,
    accumulate: bool = False,
    threads: int | None = None,
    **attributes: object,
) -> Plan:
    """Return how :func:`run` would cut a call, what it would read and what its arrays would take, without doing it.

    Arguments and errors are those of :func:`run`. The value prints as a few lines.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((64, 32, 32, 4), np.float32), np.ones((64, 32, 32, 8), np.float32)
    >>> plan("ConvolutionBackwardWeights", src, diff_dst, weights_shape=(1, 1, 4, 8)).cut
    Cut(images=64, rows=None)
    """
    return called(operator, inputs, attributes, memory, dtype, out, accumulate, threads, to_run=False).plan


def run(
    operator: str,
    *inputs: object,
    memory: int | str | None = None,
    dtype: DType | None = None,
    out: Any = None,
    accumulate: bool = False,
    threads: int | None = None,
    checkpoint: object = None,
    progress: Told | bool | None = None,
    **attributes: object,
) -> Any:
    """Run an operator on arrays larger than memory, piece by piece, and return its output, with the bits of one call.

        diff_weights = sum over images n, positions p of src[n, c, i] * diff_dst[n, o, p]

    for instance is added up as its tree over the batch has it, some images at a time, or some rows of an image that is
    too large. The next piece is read while the present one is computed.

    ``inputs`` are whatever has ``shape`` and ``dtype`` and slices: maps of files (``numpy.memmap``), arrays of zarr,
    h5py and Dask, and arrays in memory, which are computed where they lie. ``attributes`` are as for
    :func:`convgrad.run`; one int stands for all axes. ``out`` is an array, also a map of a file, or anything that takes
    ``out[region] = array``; without it the result is a new NumPy array. ``accumulate`` adds the old value last.

    ``memory`` is what the arrays that the call makes may take at any time, as bytes or as a text, ``"1GB"`` or
    ``"512MiB"``: pieces of operands, scratch, sums, and the result where it is new. It is 1 GiB where nothing is said,
    on any machine. What a source takes to read itself, and pages of files that the system keeps, are not counted.

    ``checkpoint`` is the path of a file that keeps what is finished of a call that is left, so that the same call goes
    on from there; it is removed at the end. ``progress`` is called with a ``Progress`` after every piece; True shows a
    line on a terminal.

    Raises:
        InvalidAttributeError: ``memory`` is no number of bytes, or too small for one piece; the message has the least.
        UnsupportedError: f64, or a machine without kernels, as sums in pieces have no order there.
        FileError: an operand cannot be read, or gives something else than its shape and type say, or a result cannot be
            handed over; operand and region are named. A checkpoint of another call.
        ConvgradError: otherwise, as :func:`convgrad.run` raises it.

    Follows the document of the operator named.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((20, 40, 40, 1), np.float32), np.ones((20, 40, 40, 2), np.float32)
    >>> run("ConvolutionBackwardWeights", src, diff_dst, weights_shape=(1, 1, 1, 2), memory="64kB").ravel().tolist()
    [32000.0, 32000.0]
    """
    call = called(operator, inputs, attributes, memory, dtype, out, accumulate, threads, to_run=True)
    problem, target = call.problem, call.target
    assert target is not None, "a call that is run has somewhere to write"
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=2)
    done, keeping = State(), _nobody()
    if checkpoint is not None:
        kept = checkpoint_of(problem, checkpoint, [source.given for source in call.sources], out)
        done, keeping = kept.load() or done, kept.kept()
    with told(problem.operator, progress) as tell, keeping as keep:
        done = _all(call, done, keep, tell)
        if not accumulate:
            call.finish(done)
    if accumulate:  # what was kept is gone by then: it would be added twice
        call.finish(done)
    return target.handed_over()


Keep = Callable[[State], None]


def _nobody() -> AbstractContextManager[Keep]:
    return nullcontext(lambda _: None)


def _all(call: Call, done: State, keep: Keep, tell: Told) -> State:
    """Return what is done once all pieces are, of which some were before."""
    begin, waited = time.perf_counter(), Waited()
    left = call.plan.pieces if done == State() else sum(1 for _ in call.left(done))
    resumed = max(0, call.plan.pieces - left)  # of a piece that another cut began there may be two that are left
    now = Progress(resumed, resumed + left, done.images, 0, 0.0, 0.0, resumed=resumed)
    if resumed and not left:
        tell(now)
    with call.pieces(done, waited) as slots:
        for slot in slots:
            done = call.step(slot, done)
            keep(done)
            now = replace(
                now,
                done=now.done + 1,
                images=done.images,
                read_bytes=now.read_bytes + slot.read_bytes,
                elapsed_s=time.perf_counter() - begin,
                waiting_s=waited.seconds,
            )
            tell(now)
    return done
