"""`sparewatt lease logs | exec | connect`: what runs in a lease, from the renter's terminal."""
