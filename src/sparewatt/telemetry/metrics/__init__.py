"""Metrics for Prometheus: collected when a scrape asks for them, served on a port of their own."""
