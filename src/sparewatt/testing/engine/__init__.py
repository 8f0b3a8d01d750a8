"""A deterministic model server: every answer is a pure function of the request."""
