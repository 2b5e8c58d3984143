"""Tests of the specification: rules, shapes, orders of sums, bounds, derivatives."""
