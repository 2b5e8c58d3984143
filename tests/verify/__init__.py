"""Tests of exact results, bounds, verdicts, diagnosis and probes."""
