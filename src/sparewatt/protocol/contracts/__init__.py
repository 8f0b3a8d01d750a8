"""What the contracts see: signed messages, Merkle trees, events, meta-transactions."""
