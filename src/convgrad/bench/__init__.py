"""The benchmark: times of convgrad and of other libraries on suites of problems, and the machine's measured limits."""
