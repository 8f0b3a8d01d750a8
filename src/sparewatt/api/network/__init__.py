"""/v1/network, /v1/feed and /v1/history: public aggregates, live and over time."""
