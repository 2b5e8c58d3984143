"""The cases of ``convgrad conformance`` as tests: ``pytest --pyargs convgrad.conformance``.

The environment variable CONVGRAD_CONFORMANCE_MODULE names the function, and CONVGRAD_CONFORMANCE_OPTIONS may have
options of the command, such as ``--isolate --xfails known.txt``.
"""

from convgrad.cli.conformance_tests import judged, pytest_generate_tests, test_conformance

__all__ = ["judged", "pytest_generate_tests", "test_conformance"]
