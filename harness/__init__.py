"""cake-bench: measures Mixture-of-Experts kernels so that a sceptical reviewer believes the table."""
