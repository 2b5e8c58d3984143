"""The specification of problems and results: operators, rules, geometry, the order of sums, exact results."""
