"""The market at a gateway: lookups to nodes that may bid, and what validators tell of each match."""
