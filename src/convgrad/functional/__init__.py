"""The public functions. Each checks its arguments against the operator table and computes the result."""
