"""/v1/models: the models that connected nodes serve."""
