"""Tests of ``convgrad.dask``."""
