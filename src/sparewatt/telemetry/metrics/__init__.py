"""What an operator sees of a gateway: counted as it happens, collected on a scrape, written for Prometheus."""
