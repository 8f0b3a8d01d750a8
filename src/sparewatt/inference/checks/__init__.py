"""Checks of answers at a gateway: which, by whom, and what becomes of the verdict. The rules are in `trust.checks`."""
