"""The vocabulary everything else is written in: ids, money, limits, errors, time and chance.

Nothing here does I/O, and nothing here imports another package of this project.
"""
