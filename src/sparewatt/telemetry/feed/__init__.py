"""The live feed: what changed in the network, twice a second, as strangers may see it."""
