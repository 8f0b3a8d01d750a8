"""`/v1/conversations`: items that responses read and add to, on the shelf of an API key."""
