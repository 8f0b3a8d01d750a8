"""Admission: whether a job starts now, waits in a fair queue, or is refused.

With a free place it costs two look-ups. It decides when a job starts, never where: that is the matcher's.
"""
