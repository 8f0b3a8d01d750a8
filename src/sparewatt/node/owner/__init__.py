"""What an owner controls while the agent runs: pauses, hours, ceilings and prices, over a local socket."""
