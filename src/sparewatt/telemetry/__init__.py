"""What the gateway did. A finished job is counted once; history, metrics, live feed and pulse read that."""
