"""A node's container runtime: containers, bridges, the egress table, images. Nothing of chains, orders or money."""
