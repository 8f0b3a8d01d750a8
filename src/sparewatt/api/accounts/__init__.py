"""Routes of accounts: sign-up, sessions, passwords, API keys, join tokens, and what operators do to accounts."""
