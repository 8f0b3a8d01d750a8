"""Starts, watches and stops the processes of one machine: the embedded database and our own children.

Everything started here dies with the process that started it, and is only ever signalled by its own pid.
What the children do is none of this package's business.
"""
