"""Responses of `/v1/responses`: those that are being written, the events of their streams, and the stored ones."""
