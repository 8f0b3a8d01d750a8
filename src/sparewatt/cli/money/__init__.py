"""Commands about credits, usage, payouts and the ledger."""
