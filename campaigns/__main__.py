"""Run a campaign: ``python -m campaigns KIND ...``. Each KIND is a module beside this one; ``--help`` lists them."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

NO_KINDS = ("__init__", "__main__", "command", "tdpbf16ps")
WRONG_USE = 2


def kinds() -> dict[str, str]:
    """Return the campaigns by name, each with the first line of its module."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    texts = {path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in paths}
    return {name: text.partition("\n")[0] for name, text in texts.items() if name not in NO_KINDS}


def main(arguments: Sequence[str]) -> int:
    """Run the campaign that the first argument names with the others; return the exit code."""
    kind, *others = arguments or ["--help"]
    known = kinds()
    if kind in known:
        return int(importlib.import_module(f"campaigns.{kind}").main(others))
    print("usage: python -m campaigns KIND ...; python -m campaigns KIND --help prints its options\n")
    print("\n".join(f"{name:10} {text}" for name, text in known.items()))
    return 0 if kind in ("-h", "--help") else WRONG_USE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
