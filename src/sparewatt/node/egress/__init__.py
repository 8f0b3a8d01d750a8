"""What a node fetches for its jobs from elsewhere: only where its owner allows it, and never from private addresses."""
