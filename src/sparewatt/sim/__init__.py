"""The network on a virtual clock: the shipped matcher over simulated nodes, compared with baselines and an oracle.

Truth (real speeds, output lengths, deaths) lives in `physics` and is reached by policies only through delayed reports.
"""
