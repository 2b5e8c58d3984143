"""Tests of notations of cases, and collections of them."""
