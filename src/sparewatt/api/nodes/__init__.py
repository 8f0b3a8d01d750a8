"""/v1/nodes: the machines of the network, and what is known of each. /link/v1: where they join."""
