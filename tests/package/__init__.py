"""Tests of the package as a whole: imports, words, metadata, the process it runs in."""
