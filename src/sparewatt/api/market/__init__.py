"""The market for leases."""
