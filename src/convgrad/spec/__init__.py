"""WHAT is asked and what the answer is: operators, rules, geometry, the order of sums, the oracle."""
