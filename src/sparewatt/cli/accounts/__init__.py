"""Commands of accounts: sign-up, login, keys, passwords."""
