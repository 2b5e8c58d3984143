"""The public functions. Each function checks its arguments against the operator table and computes the result."""
