"""The functions ``run`` and ``plan``, for operators on arrays larger than memory."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from convgrad.functional.types import DType
from convgrad.parameters import described
from convgrad.scale.call import ScaleCall, ScaleOptions, called
from convgrad.scale.checkpoint import State, checkpoint_of
from convgrad.scale.plan import Plan
from convgrad.scale.prefetch import Waited
from convgrad.scale.progress import Progress, Report, reporting


@described
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
    """Return the plan of a call of :func:`run` without running the call: the cut, the bytes read and the memory used.

    Errors are those of :func:`run`. ``print`` shows the plan in a few lines.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((64, 32, 32, 4), np.float32), np.ones((64, 32, 32, 8), np.float32)
    >>> plan("ConvolutionBackwardWeights", src, diff_dst, weights_shape=(1, 1, 4, 8)).cut
    Cut(images=64, rows=None)
    """
    options = ScaleOptions(memory, dtype, out, accumulate, threads)
    return called(operator, inputs, attributes, options, to_run=False).plan


@described
def run(
    operator: str,
    *inputs: object,
    memory: int | str | None = None,
    dtype: DType | None = None,
    out: Any = None,
    accumulate: bool = False,
    threads: int | None = None,
    checkpoint: object = None,
    progress: Report | bool | None = None,
    **attributes: object,
) -> Any:
    """Run an operator on arrays larger than memory, piece by piece; return its output, with the bits of one call.

        diff_weights = sum over images n, positions p of src[n, c, i] * diff_dst[n, o, p]

    For example, this sum is added in the order of its tree over the batch: some images at a time, or some rows of an
    image that is too large. The next piece is read while a piece is computed.

    Inputs are objects with ``shape``, ``dtype`` and slicing: maps of files (``numpy.memmap``), arrays of zarr, h5py and
    Dask, and arrays in memory, which are used in place. The name of a ``.npy`` file or of a Zarr folder stands for its
    array, as for ``convgrad run``. An attribute may also be one int for all axes.

    ``memory`` limits pieces of operands, scratch, sums, and a new result. Memory that a source uses to read, and the
    system's cache of file pages, are not counted.

    Keyword Args:
        out: An array, a map of a file, or an object with ``out[region] = array``, that the result is written to; None
            makes a new NumPy array. Default: None.
        checkpoint: The path of a file with the finished part of an interrupted call; None keeps none. The same call
            resumes from it, and removes it at the end. Default: None.
        progress: A function that is called with a ``Progress`` after every piece; True shows a line on a terminal.
            Default: None.

    Raises:
        InvalidAttributeError: ``memory`` is not a number of bytes, or is too small for one piece. The message names the
            smallest number.
        UnsupportedError: the operands are f64, or the machine has no kernels: then sums have no specified order.
        FileError: an operand cannot be read or returns a wrong shape or type, a result cannot be written, or the
            checkpoint is of another call. Errors of operands and results name the region.
        ConvgradError: any other error of :func:`convgrad.run`.

    Follows the document of the named operator.

    >>> import numpy as np
    >>> src, diff_dst = np.ones((20, 40, 40, 1), np.float32), np.ones((20, 40, 40, 2), np.float32)
    >>> run("ConvolutionBackwardWeights", src, diff_dst, weights_shape=(1, 1, 1, 2), memory="64kB").ravel().tolist()
    [32000.0, 32000.0]
    """
    options = ScaleOptions(memory, dtype, out, accumulate, threads)
    call = called(operator, inputs, attributes, options, to_run=True)
    problem, target = call.problem, call.target
    assert target is not None, "a call that is run has somewhere to write"
    if problem.note:
        warnings.warn(problem.note, UserWarning, stacklevel=2)
    done, keeping = State(), _nobody()
    if checkpoint is not None:
        kept = checkpoint_of(problem, checkpoint, [source.operand for source in call.sources], out)
        done, keeping = kept.load() or done, kept.kept()
    with reporting(problem.operator, progress) as tell, keeping as keep:
        done = _all(call, done, keep, tell)
        if not accumulate:
            call.store_sum(done)
    if accumulate:  # only after the checkpoint is removed: a resumed call would add the sum again
        call.store_sum(done)
    return target.handed_over()


Keep = Callable[[State], None]


def _nobody() -> AbstractContextManager[Keep]:
    return nullcontext(lambda _: None)


def _all(call: ScaleCall, done: State, keep: Keep, tell: Report) -> State:
    """Compute all unfinished pieces, and return the final state."""
    begin, waited = time.perf_counter(), Waited()
    left = call.plan.pieces if done == State() else sum(1 for _ in call.left(done))
    resumed = max(0, call.plan.pieces - left)  # the unfinished part of a piece may become two pieces
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
