"""The nodes of a gateway: their links, names and power readings."""
