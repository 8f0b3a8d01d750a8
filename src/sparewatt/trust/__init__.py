"""Trust in nodes: reputation now; verdicts, tiers and rewards later. Pure rules, no clock and no I/O."""
