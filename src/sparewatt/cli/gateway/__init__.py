"""Commands that run a gateway."""
