"""The link: one WebSocket that a node dials, multiplexing many jobs with credit-based flow control.

Both ends live here. `gateway_end` and `node_end` know frames but no sockets; `handshake` authenticates the node;
`sockets` is the interface to a WebSocket, which picows or aiohttp implement; `send_queue` batches what leaves. What a
job means is up to dispatch on the gateway and to the agent on the node. `traffic` has the streams of leases, which go
over a socket of their own.
"""
