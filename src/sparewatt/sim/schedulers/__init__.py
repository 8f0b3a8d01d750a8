"""Schedulers of the simulation: the shipped matcher, baselines, and the oracle."""
