"""Tests of graphs: read, inferred, run, written."""
