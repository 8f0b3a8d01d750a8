"""Accounts, browser sessions, API keys, join tokens, and what operators do to accounts."""
