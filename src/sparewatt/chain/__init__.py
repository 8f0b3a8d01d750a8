"""The network's side of an EVM chain: reading, signing, sending, following. The only package that imports web3.

It runs in a process of its own (`sparewatt chain run`); gateways and nodes never import it.
"""
