"""Trust in nodes: pure rules for reputation, without clock or I/O. Verdicts, tiers and rewards will follow."""
