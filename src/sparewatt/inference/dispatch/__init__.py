"""Dispatch: a matched job goes to a node; if that node fails before the first token, the next one takes over unseen.

The core is callbacks and timers, no framework and no tasks, so that any HTTP front end can drive it.
"""
