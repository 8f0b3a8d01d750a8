"""Facts of a model server that the matcher needs, each with its source: owner, server, tables, observation, default."""
