"""The names of the driver's arguments and of its tables' columns, for forwards and data gradients."""

from __future__ import annotations

from functools import cache

from convgrad.plan.fields import FLAGS

CALL = (*FLAGS, "data", "weights", "out", "bias")  # what each call has of its own: addresses; no bias: that of -0.0
TABLES = ("tasks", "slabs", "parts")
NUMBERS = (
    "task_count",
    "results", "terms", "channels", "taps",  # of a group; of the data's position, as packed; of the kernel
    "data_group", "data_item", "out_group", "out_item",  # bytes from one to the next
    "weights_group", "weights_item", "weights_term", "bias_item",
    "line_blocks",  # that the terms of a tap are cut into
    "number_step", "number_share",  # a block's number is (tap * step + its number in the tap) / share
    "levels",  # of the tree of blocks
    "pass_blocks", "tile_sums",  # blocks under which all tiles go at a time; bytes of a tile's sums that wait for more
    "term_step",  # bytes of data from a term to the next, as tiles read them
    "tap_bytes", "term_bytes",  # of weights from a tap, a term to the next, as tiles read them
    "panels", "panel_bytes", "weights_panel",  # at a time; of one, as they are read; of weights from one to the next
    "data_at", "weights_at", "bias_at", "runs_at", "blocks_at", "sums_at", "packed_at",  # in scratch
    "accumulate",
)  # fmt: skip
ALONG = (  # of each axis
    "extent", "met",  # positions of the output, of the operand
    "slabs", "slab",  # how many, and bytes of the table to the first
    "kernel", "tap",  # taps, and bytes of weights from one to the next
    "given", "step",  # bytes of the operand from a position to the next: as it lies, and as tiles read it
)  # fmt: skip

PAIRS = (  # of kernels that take pairs
    "least_sum", "paths",  # of least exponents; where panels are counted by how their terms were taken
    "line_at", "least_at",  # in scratch: a line of positions that is packed, before it is words; the least of a slab
)  # fmt: skip
TASK = ("group", "groups", "panel", "panels", "slab", "slabs")
SLAB = ("part", "parts", "first", "count")  # rows of the table of parts, in bytes; positions of the operand
PART = (
    "count", "out", "out_step",  # positions; bytes of the output at the first, and to the next
    "met", "met_step",  # the operand's position that the first meets by its first tap; to what the next meets
    "data", "data_step",  # bytes of what that is, and to what the next meets
    "taps", "tap", "tap_step", "tap_data",  # count, numbers in the kernel, bytes of data from one to the next
    "first_bias", "bias",  # bytes to the first position's bias, and to the next, where positions have any
    "height", "tiles", "waste",  # of tiles along this axis: rows, how many, and cycles a position in 1024ths
)  # fmt: skip
RUN = ("data", "weights", "count")  # terms that lie together in both: bytes, bytes
WINDOW_RUN = (*RUN, "first")  # taps of a row of the kernel, and which of the row is the first of them
BLOCK = ("number", "runs", "run")  # its number, how many runs, and bytes to the first


@cache
def fields(axes: int) -> tuple[str, ...]:
    """Return the names of the arguments of a kernel of so many axes, in order."""
    return (*CALL, *TABLES, *NUMBERS, *(f"axis{axis}.{word}" for axis in range(axes) for word in ALONG))


@cache
def positions_fields(axes: int) -> tuple[str, ...]:
    """Return the names of the arguments of a kernel whose rows are positions."""
    return (*fields(axes), *PAIRS)
