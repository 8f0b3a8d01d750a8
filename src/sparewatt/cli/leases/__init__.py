"""`sparewatt lease`: rent machines of the network."""
