"""Tests of ``convgrad bench`` and the programs in benchmarks/; never of how fast anything is."""
