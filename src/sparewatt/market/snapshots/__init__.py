"""Heartbeats of nodes, what validators observe of them, and the table of providers that they vote on each epoch."""
