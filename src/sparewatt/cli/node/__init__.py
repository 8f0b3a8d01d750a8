"""Commands of a machine that lends its GPU."""
