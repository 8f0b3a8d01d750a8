"""Leases that are placed: what nodes are told to run, what their keys have signed, and how deployments stand."""
