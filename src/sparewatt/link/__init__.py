"""The link: one WebSocket that a node dials, carrying many jobs with flow control. Both ends live here.

`gateway_end` and `node_end` know frames and no sockets; `handshake` proves who dials; `sockets` is what a link needs of
a WebSocket, with picows and aiohttp behind it. Nothing here knows what a job means: that is dispatch on one side and
the agent on the other.
"""
