"""How fast each model is on this machine: timed by short jobs, repeated while idle, kept on disk."""
