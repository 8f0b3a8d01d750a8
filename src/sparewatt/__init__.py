"""Sparewatt: spare GPUs, anywhere, as one dependable cloud."""

__version__ = "0.1.0"
