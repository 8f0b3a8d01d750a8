"""The node agent: serves a gateway's jobs with a model server on this machine, over a link that it dials itself.

A node needs no database and imports nothing of the store or of inference; it decides nothing about other nodes.
"""
