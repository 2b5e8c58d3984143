"""The tests: a package, so that they find their helpers wherever they are run from."""
