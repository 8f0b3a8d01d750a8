"""Money, in double-entry accounting and integer nano-USD: holds, the write-ahead log, postings, credits and payouts."""
