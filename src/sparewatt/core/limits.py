"""Bounds that two packages share, each with the reason for its size. A bound of one package is where it is used."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

REQUEST_BODY_BYTES_MAX = 20 * MIB
"""Chats with several images as data URIs fit; a bigger body is refused before it is read."""

LONG_BODY_BYTES_MIN = 16 * KIB
"""From here on it is cheaper to have a decoder skip a body's texts than to search them for a few words."""

REPLY_BODY_BYTES_MAX = 16 * MIB
"""A reply that is not streamed is buffered until it is complete, so that a failover stays invisible to the client."""

NAME_CHARS_MAX = 100
"""Names that people give to keys and nodes."""

MODELS_PER_NODE_MAX = 200
"""More would make reports and `/v1/models` unreadable; an Ollama host rarely has over 50."""

NODES_MAX = 100_000
"""Rows of one gateway's table; a gateway runs out of sockets first."""

MATCHES_KEPT = 10_000
"""Explanations kept in memory per process: 0.3 kB each, and what its decision takes."""

MATCHES_LOOKED_BACK_MAX = 2_000
"""Matches that one answer to an owner's question goes through: about 10 ms of a gateway's time."""

MATCHES_STORED_DAYS = 7
"""Long enough to look into a complaint."""

RETRY_AFTER_S_MAX = 120.0
"""Longer than this, OpenAI's clients do not wait at all."""

ATTEMPTS_MAX = 3
"""Nodes tried for one job: more rarely helps and multiplies the load of a bad request."""

REFUSALS_MAX = 2
"""Refusals by nodes that do not count as attempts: a full node answers at once and costs nothing."""

KEEP_ALIVE_S = 10.0
"""A stream that was idle for this long gets an SSE comment as keep-alive: proxies close idle ones after a minute."""

SSE_EVENT_BYTES_MAX = 1 * MIB
"""One server-sent event; a token is about 200 bytes, a chunk of logprobs a few kB."""

LINK_MESSAGE_BYTES_MAX = MIB
"""One WebSocket message, which holds many frames. A link keeps a buffer as large as the longest it has received."""

LINK_FRAME_BYTES_MAX = 256 * KIB
"""One frame's payload: small enough that a long body does not delay the tokens of other jobs."""

LINK_CONTROL_BYTES_MAX = LINK_FRAME_BYTES_MAX
"""One control message; the longest is the report of a node with as many models as it may have (about 160 kB)."""

LINK_JOBS_MAX = 256
"""Jobs on one link at once, waiting ones included."""

GATEWAY_PROCESSES_MAX = 64
"""Processes of one gateway. A node keeps a link to each, and each polls every other twice a second."""

JOIN_TOKEN_LIFE_S = 24 * 3600.0
"""Long enough to copy a line to another machine, short enough to forget about."""

JOB_TIMEOUT_S = 1800.0
"""A job that takes longer than half an hour is ended."""

DRAIN_S = 30.0
"""How long a stopping process waits for running jobs."""

KEYS_MAX = 1_000_000
"""Keys held in memory by a gateway (about 400 bytes each)."""

NODE_QUEUE_PER_SLOT = 8
"""Jobs that may wait on a node for each one that runs: beyond it, another node or a refusal is better."""

LOAD_REPORT_INTERVAL_S = 0.05
"""Between heartbeats a node reports jobs of other gateways at most this often: twenty small messages a second."""

READ_PER_TICK_BYTES = 64 * KIB
"""Bytes that are read from one connection per tick of the event loop, for fairness: a socket can hold megabytes."""

CLIENT_WRITE_S = 15.0
"""A client that reads nothing for this long counts as gone, even if its socket is open."""

KEYS_PER_ACCOUNT_MAX = 1_000
"""A key for every app and machine of a company fits; more is a loop that forgot to revoke."""

POLICY_BYTES_MAX = 8 * KIB
"""A policy with every field of the vocabulary and long lists of nodes."""

SESSION_LIFE_S = 14 * 24 * 3600.0
"""A fortnight: a browser that is used weekly stays logged in, a forgotten one does not for long."""

POLICIES_COMPILED_MAX = 4_096
"""Compiled policies in the cache (about 2 kB each): a key's policy comes with every request."""

WORDS_REMEMBERED_MAX = 4_096
"""Cached names of GPUs, regions and quantizations: nodes share a few dozen, a malicious one may send many."""

TRANSFER_NANO_MAX = 10**15
"""One grant, deposit or funding: a million dollars. A larger one is a typo, and sums must fit a bigint."""

CHAIN_CALL_S = 10.0
"""One call to a chain's RPC node; a healthy one answers within a second."""

RESPONSES_STORED_PER_KEY_MAX = 10_000
"""Stored responses of one key: one every nine seconds, all day."""

RESPONSES_STORED_BYTES_PER_KEY_MAX = 256 * MIB
"""What they may take together: a dozen of the largest, or all of them at 26 kB each."""

METRICS_MODELS_MAX = 100
"""Models with metrics of their own, about 50 time series each; the rest is counted together."""

PULSE_NODES_MAX = 40
"""Nodes in an operator's pulse: as many as a tall terminal has lines."""
