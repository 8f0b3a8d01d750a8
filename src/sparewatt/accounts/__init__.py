"""Who may do what: people, sessions, API keys, budgets, rate limits, join tokens, and chain keys held for accounts."""
