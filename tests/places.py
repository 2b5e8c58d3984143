"""Where things are in the repository: tests and the programs beside them look for them here only."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
BENCHMARKS = ROOT / "benchmarks"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
SOURCES = ROOT / "src" / "convgrad"
FOREIGN = TESTS  # in which ``--call foreign_functions:NAME`` finds its module
GOLDEN = TESTS / "golden"
GRAPHS = TESTS / "graphs"
SHARED_CASES = ROOT.parent / "shared" / "cases"  # problem files that are not ours to publish
