"""/v1/credits, /v1/key, /v1/treasury, /v1/usage, /v1/generation, /v1/earnings, /v1/payouts and /v1/ledger."""
