"""The names of the defects that the statistics recognise."""

from __future__ import annotations

OPERANDS_ROUNDED = "operands rounded to {}"
OPERANDS_TRUNCATED = "operands truncated to {}"
PARTIALS = "partial sums rounded to {}"
RESULT = "result rounded to {}"
ACCUMULATED = "sums accumulated in {}"
ADDITIONS_TRUNCATED = "additions truncated"
LAST_TRUNCATED = "last rounding truncated"
PRODUCTS_TRUNCATED = "products truncated"
SCALED = "scaled by a constant"
OFFSET = "offset added"
MULTIPLES = "result rounded to multiples"
ONE_GROUP = "one {} off"  # a destination channel, a tap and source channel, a row of an image
SINGLE = "single elements off"
