"""Trust in nodes: pure rules for reputation, tiers and rewards, without clock or I/O."""
