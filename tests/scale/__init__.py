"""Tests of ``convgrad.scale``: calls in pieces."""
