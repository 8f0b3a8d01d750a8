"""A lease that runs, changed by its renter: paused, extended, topped up, scaled, supplied with secrets."""
