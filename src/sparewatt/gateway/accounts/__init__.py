"""Routes for people, their keys and join tokens, and for operators."""
