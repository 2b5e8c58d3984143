"""Tests of ``convgrad.testing``."""
