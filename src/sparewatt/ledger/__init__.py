"""The books: what is held, what was spent, who earned it. Append-only, double entry, integer nano-USD."""
