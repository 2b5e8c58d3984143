"""The benchmark: suites of problems, convgrad and its peers timed side by side, the machine's roofs in the same run."""
