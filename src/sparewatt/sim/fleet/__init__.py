"""Simulated machines: what is true about them, and the node agent on each, which reports a part of it."""
