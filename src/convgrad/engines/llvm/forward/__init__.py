"""Forward passes and data gradients in IR: loop nests, packing, micro-tiles and stencils."""
