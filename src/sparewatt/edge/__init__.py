"""The HTTP edge: sockets, parsing, TLS, CORS, cookies, idempotency, request log.

One socket, two ways behind it. `connection` parses requests with llhttp. What models answer goes to an `exchange`:
callbacks from the first byte of the request to the last of the reply, without a task or a framework. Everything else is
serialised anew for aiohttp, one request at a time (`aiohttp_bridge`), which therefore never sees bytes that a client
made up. `server` listens and checks timeouts.
"""
