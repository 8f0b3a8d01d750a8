"""Simulated machines: their physics, their caches, and what they report of themselves."""
