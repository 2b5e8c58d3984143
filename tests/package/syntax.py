"""The statements of Python sources, without the expressions in them, which are most of a tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator

INNER = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module or a statement, and the statements in it, wherever they are.

    >>> tree = ast.parse("try:\\n  with a: import b\\nfinally:\\n  match c:\\n    case d: from e import f")
    >>> [node.names[0].name for node in statements(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    ['f', 'b']
    """
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for field in INNER:
            left += getattr(node, field, ())
