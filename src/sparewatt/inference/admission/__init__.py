"""Admission: what a request is, before anyone is asked to serve it."""
