"""/v1/credits, /v1/usage, /v1/earnings and the rest of what people want to know about money."""
