"""The HTTP edge: sockets, HTTP/1.1 parsing, TLS, CORS, cookies, idempotency, request log.

`server` listens; a `connection` per client parses requests (`http1`). A request that a model answers becomes an
`exchange`: callbacks from the first byte of the request to the last byte of the reply, without a task or a framework.
Any other request is serialised again and passed to aiohttp (`aiohttp_bridge`), one at a time, so aiohttp never sees
bytes that a client made up. What handlers do is in `api/`.
"""
