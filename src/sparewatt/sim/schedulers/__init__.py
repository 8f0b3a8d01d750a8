"""What chooses a machine for a simulated job: the shipped matcher, baselines, and the oracle."""
