"""Deposits, claims and payout roots on the settlement contract."""
