"""The node agent: fronts a model server on this machine and serves a gateway's jobs over a link that it dials itself.

It imports neither the store nor the inference side: a node needs no database and decides nothing about others.
"""
