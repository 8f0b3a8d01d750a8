"""The dashboard as a gateway serves it. `web/` is built into `dist/`, which is in a wheel and not in the repository."""
