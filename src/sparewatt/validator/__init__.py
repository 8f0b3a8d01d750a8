"""The process of a validator: the quorum match and the snapshots over HTTP, without Postgres and without web3."""
