"""Rewards per era: a share of the fees and what the operator deposits, to nodes and validators. Pure."""
