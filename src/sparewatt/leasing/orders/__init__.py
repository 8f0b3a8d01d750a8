"""The renter's side of the market: what an order file says, what it would cost, and its way to the chain."""
