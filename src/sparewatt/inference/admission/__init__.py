"""Admission: what a request is, and whether it may start now, must wait, or is told no.

With a free place it costs two look-ups. It decides when a job starts, never where: that is the matcher's.
"""
