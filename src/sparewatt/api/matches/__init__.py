"""/v1/matches and /v1/match: why a node was chosen, and dry runs."""
