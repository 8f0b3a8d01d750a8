"""Accounts: people, sessions, API keys, rate limits, join tokens, and the custody of accounts' chain keys."""
