"""How fast each model is on this machine: timed with short jobs, checked again while idle, saved to disk."""
