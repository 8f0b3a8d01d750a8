"""The HTTP front end: one socket, two ways behind it.

`connection` reads requests with llhttp. What models answer goes straight to an `exchange`: callbacks from the first
byte of the request to the last of the reply, no task and no framework. Everything else is written out anew for
aiohttp, one request at a time (`guest`), which therefore never sees bytes that a client made up. `server` listens and
looks after deadlines.
"""

from sparewatt.gateway.front.patience import Patience
from sparewatt.gateway.front.server import listening

__all__ = ["Patience", "listening"]
