"""From what was delivered to what it costs: counting, tabs, receipts. The books themselves are `ledger/`."""
