"""Elementwise functions and sums of networks: definitions by operations, and slow executions with the same bits."""
