"""Who may do what: API keys and join tokens. People, sessions and budgets come with accounts."""
