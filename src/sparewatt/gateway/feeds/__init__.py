"""Routes that show: nodes, matches, the status page, health."""
