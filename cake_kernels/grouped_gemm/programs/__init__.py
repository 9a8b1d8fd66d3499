"""One program a file; ``cake_kernels.registry`` says what such a file holds and lists them."""
