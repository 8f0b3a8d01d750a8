"""Trust in nodes: pure rules for reputation, checked answers, tiers and rewards, without clock or I/O."""
