"""What the node reports of itself: models and speeds of its server, prices of its owner."""
