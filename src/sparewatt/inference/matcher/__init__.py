"""Matching is filter → score → pick → explain: pure functions over a table that the gateway holds in memory.

No clock, chance, I/O or logging is imported here; time comes in as `now_s` and chance as a hash of (seed, match, node).
"""
