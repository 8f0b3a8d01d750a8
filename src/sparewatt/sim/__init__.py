"""A discrete-event simulation of the network: the shipped matcher, baselines and an oracle over simulated nodes.

What is true (real speeds, output lengths, deaths) is in `fleet/` and `scenario.py`. Schedulers learn it only through
delayed reports, as gateways do; the oracle alone reads it directly.
"""
