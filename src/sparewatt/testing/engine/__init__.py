"""A deterministic model server: every answer can be computed beforehand."""
