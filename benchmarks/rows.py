"""Rows of figures as a CSV file, and the arguments that ask for one."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from convgrad.disk import check_new, written
from convgrad.errors import FileError


def asked(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None, **output: Any) -> argparse.Namespace:
    """Parse a benchmark's command line with ``-o`` and ``--force``, and refuse, before any work, to replace a file.

    ``output`` is what else ``-o`` is: required, or of a default.
    """
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.csv", help="write the rows as CSV", **output)
    parser.add_argument("--force", action="store_true", help="replace output files that exist")
    options = parser.parse_args(arguments)
    for path in (options.output, getattr(options, "plot", None)):
        if path is not None:
            try:
                check_new(path, options.force)
            except FileError as error:
                parser.error(str(error))
    return options


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows, which have the same columns, where ``asked`` found that they may be written; say so."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    with written(path, force=True) as file:
        file.write(text.getvalue().encode())
    print(f"wrote {path}: {len(rows)} rows", file=sys.stderr)
