"""Tests of the pages, the README, the examples; and the programs that make pages."""
