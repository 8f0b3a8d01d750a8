"""Health, version, pulse, downloads and the chain: what operators and machines need of a gateway."""
