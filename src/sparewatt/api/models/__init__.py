"""/v1/models: what can be asked for right now."""
