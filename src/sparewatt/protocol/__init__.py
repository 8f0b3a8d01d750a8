"""Shapes on the wire and how they are signed. No sockets, no clocks: bytes in, values out."""
