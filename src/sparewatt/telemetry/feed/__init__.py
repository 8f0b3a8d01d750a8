"""The live feed: what changed in the network, twice a second, as much of it as is public."""
