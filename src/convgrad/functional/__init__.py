"""The public functions: each checks its call against the operator table and executes it."""
