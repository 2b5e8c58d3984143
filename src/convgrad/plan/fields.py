"""The names of the driver's arguments for weight and bias gradients: addresses, what is known of each side, numbers."""

from __future__ import annotations

SIDES = ("rows", "lanes")
SIDE = (
    "entries",  # address of the table of what is packed at a time: (byte offset, terms)
    "image", "group", "item", "term",  # bytes from one to the next, as the operand lies
    "items",  # of a group
    "at",  # where its panels are in scratch, in bytes,
    "panel",  # and from a panel to the next
    "read_image", "read_term",  # bytes from one to the next of the sum, as the tile reads it: packed, or in place
    "ahead",  # bytes from a term to what a strip asks for ahead, or a pack that transposes
    "out",  # bytes from what an item becomes in the output to the next
)  # fmt: skip
TABLES = (
    "tasks", "chunks", "taps", "outs", "segments", "masks", "line_index", "lines", "places", "shifts", "chains",
)  # fmt: skip
FLAGS = ("counter", "pending", "active", "stop")  # words behind the fields that fields point to; the pool's last three
CALL = (*FLAGS, "rows.data", "lanes.data", "out", "kept")  # what each call has of its own: addresses
NUMBERS = (
    "task_count",
    "groups", "out_group",  # all of them; bytes from one to the next in the output
    "tap_step",  # bytes of src from what a tap meets to the next, as the tile reads it
    "left", "right",  # bytes of zeros beside a packed row of src
    "swapped",  # whether, of a tile of one tap, the lanes are of src
    "rows_next",  # bytes from what rows in place are read by a chunk to what the next chunk reads
    "block_images", "block_step", "index_step",  # of a block; from a block to the next: images, bytes of line_index
    "mask_bytes",  # of the masks under one set of outer taps
    "sums_at", "sums_step", "panel_sums",  # where sums are in scratch; bytes of a tile's, and of a panel's if kept
    "levels", "unit_levels",  # of the tree of a task's sums; of the tree of the units that several tasks share
    "image_parts", "units",  # tasks that share a part of the weights; units of the batch that they sum
    "taps_together", "accumulate",
    "least_sum", "paths",  # of least exponents, for pairs; where panels are counted by how their terms were taken
)  # fmt: skip
ADDRESSES = frozenset((*CALL, *TABLES, "paths", *(f"{side}.entries" for side in SIDES)))
FIELDS = (*CALL, *TABLES, *(f"{side}.{word}" for side in SIDES for word in SIDE), *NUMBERS)

# The columns of the table of chunks: images and blocks, the first chain and block, what is packed, whether it is last.
CHUNK = (
    "image", "images", "blocks", "chain", "index", "rows.entry", "rows.entries", "lanes.entry", "lanes.entries", "last",
)  # fmt: skip
