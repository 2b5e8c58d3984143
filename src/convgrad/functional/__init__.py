"""The public functions. Each checks its call against the operator table and computes it."""
