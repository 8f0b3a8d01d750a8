"""A discrete-event simulation of the network: the shipped matcher over simulated nodes, beside baselines and an oracle.

What is true (real speeds, output lengths, deaths) is in `fleet/` and `scenario.py`. Schedulers learn it only through
delayed reports, as gateways do; the oracle alone reads it directly.
"""
