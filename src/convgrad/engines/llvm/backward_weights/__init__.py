"""Backward weights in IR: the nests of weight and bias gradients, packing, micro-tiles, the direct depthwise kernel."""
