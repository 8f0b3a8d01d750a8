"""The simulated workload: traces, and the jobs made from them."""
