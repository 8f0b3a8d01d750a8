"""The dashboard: built from `web/` into `dist/`, part of a wheel and not of the repository, and served here."""
