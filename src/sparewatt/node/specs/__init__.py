"""What the node reports about itself: the models and speeds of its server, the prices of its owner."""
