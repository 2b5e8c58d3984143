"""Tests of arrays in files."""
