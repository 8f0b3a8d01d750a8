"""Leases of whole GPUs: orders, bids, and the rule by which a quorum of validators matches them."""
