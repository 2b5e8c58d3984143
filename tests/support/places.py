"""Where things are in the repository: tests and the programs beside them look for them here only."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
CAMPAIGNS = ROOT / "campaigns"
BENCHMARKS = ROOT / "benchmarks"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
SOURCES = ROOT / "src" / "convgrad"
FOREIGN = SUPPORT  # in which ``--call foreign_functions:NAME`` finds its module
GOLDEN = TESTS / "golden"
GRAPHS = SUPPORT / "graphs"
SHARED_CASES = ROOT.parent / "shared" / "cases"  # problem files that are not ours to publish
