"""Weight and bias gradients in IR: loop nests, packing, micro-tiles, and the direct depthwise kernel."""
