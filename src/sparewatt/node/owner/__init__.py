"""What an owner controls while the agent runs: pauses, working hours, ceilings and prices, over a local socket."""
