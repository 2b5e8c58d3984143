"""Backward weights: the loops of weight and bias gradients, their kernels, cuts, costs and schedules."""
