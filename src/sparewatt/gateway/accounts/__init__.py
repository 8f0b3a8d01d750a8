"""Routes for keys and join tokens."""
