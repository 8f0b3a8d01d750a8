"""One vocabulary for which nodes may serve a job: parsed from any carrier, composed over levels, checked, explained.

Pure: no clock, randomness, I/O or logging. It says what is allowed; the matcher ranks, `accounts/` stores.
"""
