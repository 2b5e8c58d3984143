"""Tests of plans: regions, segments, cuts, tables, cost-model constants."""
