"""Who may do what: people and their sessions, API keys, budgets and rate limits, join tokens, chain keys held for them."""
