"""A container image of a node that serves one model, made from what is installed on this machine. Downloads nothing."""
