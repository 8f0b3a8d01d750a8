"""What every other package is built on: ids, money, errors, shared bounds, time and randomness by argument, logging.

It imports no other package of this project and does no I/O but reading a settings file and writing log lines.
"""
