"""One machine, several agents and two markets: what is promised to leases, and what is left to inference."""
