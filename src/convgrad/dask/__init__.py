"""The convolution operators on Dask arrays: the bits of one call, whatever the chunks and whoever computes them."""
