"""Leases of whole GPUs: orders, bids, and the auction rule that a quorum of validators applies. Pure rules."""
