"""What the chain's process does for the lease market without being asked: certificates, ends of attempts, refunds."""
