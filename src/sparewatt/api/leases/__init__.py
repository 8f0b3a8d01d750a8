"""HTTP handlers of the lease market."""
