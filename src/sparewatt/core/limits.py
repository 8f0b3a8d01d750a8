"""Every bound of the product, each with the reason for its size. Nothing is unbounded."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

REQUEST_BODY_BYTES_MAX = 20 * MIB
"""Chats with several images as data URIs fit; a bigger body is refused before it is read."""

BODY_FIELDS_MAX = 50_000
"""Fields of one body, however deep: a chat of as many messages as it may have. Each costs up to a microsecond."""

COMPLEX_BODY_BYTES_MIN = 5 * BODY_FIELDS_MAX
"""What so many fields take at least (`"":0,`): a shorter body need not be counted. As many values take more."""

BODY_VALUES_MAX = 300_000
"""Values of one body: as many token ids as OpenAI takes at once. Read in some 30 ms, in which nobody else is served."""

BODY_TOP_FIELDS_MAX = 1_000
"""Of those fields, what stands at the top: servers know two hundred, and each is looked up."""

LONG_BODY_BYTES_MIN = 16 * KIB
"""From here on it is cheaper to have a decoder skip a body's texts than to search them for a few words."""

REPLY_BODY_BYTES_MAX = 16 * MIB
"""A reply that is not streamed is held whole until it is complete, so that a dying node stays invisible."""

PROMPTS_MAX = 2048
"""Texts in one request for completions or embeddings: OpenAI's own bound."""

MESSAGES_MAX = 20_000
"""Messages of one chat: each is looked at by itself, and a body of nothing else held up everybody for a minute."""

MODEL_ID_CHARS_MAX = 256
"""Paths of model files, which some servers use as names, fit."""

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

MATCHES_TO_STORE_MAX = 1_000
"""Explanations that wait for Postgres; when it is away for longer, the oldest are lost."""

MATCHES_STORED_DAYS = 7
"""Long enough to look into a complaint."""

CANDIDATES_KEPT = 8
"""Ranked candidates that an explanation keeps, and that the cascade may use."""

PREFIX_HOLDERS_MAX = 8
"""Nodes that a match prices for what they hold of a prompt, and that are remembered for one block of it."""

PREFIX_BLOCK_BYTES = 2 * KIB
"""Prompts are compared in blocks of this size, about 512 tokens: what is shorter is read faster than it is found."""

PREFIX_BLOCKS_PER_PROMPT_MAX = 128
"""Blocks of one prompt that are hashed: 256 KiB, some 65,000 tokens, in under 0.2 ms."""

PREFIX_BLOCKS_MAX = 200_000
"""Blocks that a gateway remembers over all nodes and models (about 400 bytes each); the longest unused go first."""

PREFIX_AGE_S_MAX = 1800.0
"""After half an hour without use a server has needed the memory for others; the usual gap is under two minutes."""

RETRY_AFTER_S_MAX = 120.0
"""Longer than this, OpenAI's clients do not wait at all."""

ATTEMPTS_MAX = 3
"""Nodes tried for one job: more rarely helps and multiplies the load of a bad request."""

REFUSALS_MAX = 2
"""Refusals by nodes that do not count as attempts: a full node answers at once and costs nothing."""

SEAMS_MAX = 8
"""Nodes that may take over one answer after another has begun it: on the shakiest network a long answer still ends."""

EMITTED_TEXT_BYTES_MAX = 1 * MIB
"""Text of an answer that is kept so that another node can go on with it: some 250,000 tokens."""

TIMER_QUEUE_INTERVAL_S = 0.1
"""Between two looks at all deadlines of running jobs: so late may one be noticed, of seconds that it was waited for."""

TIMER_QUEUE_FIRED_MAX = 200
"""Jobs whose deadline is acted on in one turn of the event loop; many of one dead node come due together."""

RESUME_RETRY_S = 0.25
"""How often a broken answer looks for a node while all that could take it are full or away."""

KEEP_ALIVE_S = 10.0
"""After this long without a byte a stream gets a comment: proxies close what is silent for longer than a minute."""

SSE_EVENT_BYTES_MAX = 1 * MIB
"""One server-sent event; a token is about 200 bytes, a chunk of logprobs a few kB."""

LINK_MESSAGE_BYTES_MAX = MIB
"""One WebSocket message, which holds many frames. A link keeps a buffer as large as the longest it has received."""

LINK_BATCH_BYTES = 16 * KIB
"""What is put into one message of many frames, and read of a link before others have a turn: under a millisecond, also
of tokens that each name twenty others.
"""

LINK_FRAME_BYTES_MAX = 256 * KIB
"""One frame's payload: small enough that a long body does not hold up the tokens of other jobs."""

LINK_CONTROL_BYTES_MAX = LINK_FRAME_BYTES_MAX
"""One control message; the longest is the report of a node with as many models as it may have (about 160 kB)."""

LINK_SEND_QUEUE_BYTES_MAX = 64 * MIB
"""What may wait to be sent on one link before it counts as stuck and is closed."""

LINK_SEND_S = 60.0
"""A peer that makes no room for the next message for this long never will; a full one over 1 Mbit/s takes 9 s."""

LINK_STREAM_WINDOW_BYTES = 64 * KIB
"""What a node may send of a stream before the gateway has passed it on: 300 tokens, over 1,000 a second at 200 ms."""

LINK_WHOLE_WINDOW_BYTES = 256 * KIB
"""The same of an answer in one piece, which is taken as it comes: vectors are megabytes, and nobody reads slowly."""

LINK_JOBS_MAX = 256
"""Jobs on one link at once, waiting ones included."""

GATEWAY_PROCESSES_MAX = 64
"""Processes of one gateway. A node keeps a link to each, and each asks every other twice a second how it is."""

LINK_HANDSHAKE_S = 10.0
"""From opening the socket to a verified signature."""

LINK_EARLY_BYTES_MAX = 2 * MIB
"""What a socket keeps of messages that nobody has asked for yet: the handshake's are far shorter."""

LINK_READ_BUFFER_BYTES = 4 * KIB
"""What a link reads into at first; it doubles when that is not enough. Ten thousand idle links are 40 MB."""

LINK_CREDIT_PARTS = 4
"""Credit is given back when so much of a window has been taken: a quarter, not a frame for every token."""

LINK_UNAUTHENTICATED_MAX = 200
"""Sockets at once that have not yet shown who they are."""

JOIN_TOKEN_LIFE_S = 24 * 3600.0
"""Long enough to copy a line to another machine, short enough to forget about."""

JOB_TIMEOUT_S = 1800.0
"""Whatever happens, a job is over after half an hour."""

DRAIN_S = 30.0
"""What a process that was asked to stop waits for running jobs."""

KEYS_MAX = 1_000_000
"""Keys held in memory by a gateway (about 400 bytes each)."""

NODE_QUEUE_PER_SLOT = 8
"""Jobs that may wait on a node for each one that runs: beyond it, waiting elsewhere or being told no is better."""

LOAD_REPORT_INTERVAL_S = 0.25
"""Between heartbeats a node tells of work from elsewhere at most this often: four small messages a second."""

REJECTIONS_KEPT = 64
"""Rejected nodes that an explanation names; the funnel counts them all."""

READ_PER_TICK_BYTES = 64 * KIB
"""Who has sent that much at once is read on when all others had a turn: sockets hold megabytes, read in one go."""

FAIR_QUEUE_TICK_S = 0.001
"""What one turn of the event loop does for those who stand in line: all others wait for so long."""

TICK_BUDGET_S = 0.002
"""How long requests are begun in one turn; those that come after that stand in line."""

CLIENT_WRITE_S = 15.0
"""A client that takes nothing for this long is gone, whatever its socket says."""

NODE_AHEAD_PER_SLOT = 1
"""Jobs sent ahead to a node for each one that runs: no slot idles for a round trip, the rest waits in line."""

WAITING_PER_BAND_MAX = 100
"""Jobs of one priority that wait for one model: at a job a second, the last of them just makes it in time."""

WAITING_PER_KEY_MAX = 50
"""Of those, one key's: nobody fills a band alone."""

WAITING_BYTES_MAX = 256 * MIB
"""Bodies that wait, over all models: a dozen of the largest, a hundred thousand of the usual."""

WAITING_S_MAX = 60.0
"""Clients and proxies give up after a minute or so; an answer that says when to come back is better than theirs."""

JOBS_TO_POST_MAX = 100_000
"""Settled jobs that wait for Postgres (about 1 kB each); when it is away for longer, new jobs are refused."""

JOBS_POSTED_AT_ONCE = 500
"""Jobs in one transaction: a few milliseconds of Postgres."""

PURSES_MAX = 100_000
"""Accounts that spend at one gateway at a time (about 500 bytes each)."""

PURSE_IDLE_S = 60.0
"""After this long without a job, what a gateway has reserved of an account's balance goes back."""

RECEIPTS_WAITING_MAX = 50_000
"""Receipts, and deliveries that have none yet, which a gateway keeps; more than a minute's worth at full speed."""

RECEIPT_WAIT_S = 30.0
"""A receipt follows its job at once; one that comes later than this belongs to nothing any more."""

KEYS_PER_ACCOUNT_MAX = 1_000
"""A key for every app and machine of a company fits; more is a loop that forgot to revoke."""

SESSIONS_PER_ACCOUNT_MAX = 50
"""Browsers logged in at once; the oldest goes first."""

ACCOUNTS_LISTED_MAX = 1_000
"""Accounts on one page of the operator's list."""

PASSWORD_CHARS_MIN = 10
"""Long enough that guessing at the pace that logins allow is hopeless, short enough to be typed."""

PASSWORD_CHARS_MAX = 256
"""Any passphrase; hashing time does not grow with it, but a body should not either."""

EMAIL_CHARS_MAX = 254
"""The longest address that SMTP can carry (RFC 5321)."""

POLICY_BYTES_MAX = 8 * KIB
"""A policy with every field of the vocabulary and long lists of nodes."""

PASSWORD_HASHES_AT_ONCE = 2
"""Each takes 64 MiB and a core for some 50 ms; the rest of the gateway wants cores as well."""

PASSWORD_HASHES_WAITING_MAX = 64
"""Those who wait for a hash: the last of them waits about two seconds. More is an attack."""

SESSION_LIFE_S = 14 * 24 * 3600.0
"""A fortnight: a browser that is used weekly stays logged in, a forgotten one does not for long."""

PASSWORD_RESET_LIFE_S = 3600.0
"""A mail is read within the hour, or asked for again."""

INVITE_LIFE_S = 7 * 24 * 3600.0
"""A week to answer an invitation."""

SESSIONS_REMEMBERED_MAX = 10_000
"""Sessions that a gateway remembers between two looks into Postgres (about 500 bytes each)."""

SESSION_REMEMBERED_S = 2.0
"""For how long it believes them: a logout elsewhere, or a closed account, is noticed within this."""

RATE_METERS_MAX = 100_000
"""Keys or addresses whose use is counted at the same time (about 300 bytes each); the longest idle go first."""

RETRY_AFTER_S_MAX = 120.0
"""SDKs give up on longer waits, or block for as long."""

MAILS_WAITING_MAX = 100
"""Mails that wait to be sent; when the mail server is away for longer, people ask again."""

POLICY_TEXT_CHARS_MAX = 8 * KIB
"""A policy in one line: no longer than a header may be."""

POLICY_CONDITIONS_MAX = 64
"""Conditions of one policy: twice as many as there are fields."""

POLICY_LIST_MAX = 256
"""Names in one list of a policy: every country of the world fits."""

POLICY_FILE_CHARS_MAX = 16 * KIB
"""A policy file with all fields and 256 names of nodes; YAML of this size is read in under half a second."""

POLICIES_COMPILED_MAX = 4_096
"""Policies kept ready to check nodes with (about 2 kB each): keys repeat theirs on every request."""

REQUEST_POLICIES_KEPT = 1_024
"""What requests and their keys said, kept as it was understood: at the very most 24 kB each."""

RELAXATIONS_NODES_MAX = 1_000
"""Nodes looked at for what would help a request that found nobody: about 20 ms, which others wait for."""

VERDICTS_KEPT_MAX = 1_000_000
"""Verdicts of all policies on all nodes (about 200 bytes each): who sends ever new policies fills no memory."""

WORDS_REMEMBERED_MAX = 4_096
"""Names of cards, regions and formats that were looked up: nodes share a few dozen, a liar may send many."""

RECEIPTS_PER_NODE_MAX = 10_000
"""Of those that came before their job was over, one node's: as many as it keeps itself, and no node crowds out all."""

TRANSFER_NANO_MAX = 10**15
"""One grant, deposit or funding: a million dollars. Above it a zero was typed too many, and sums must fit a bigint."""

STATEMENT_LINES_MAX = 1_000
"""Lines of a statement per page, some 300 kB; further ones follow by cursor."""

STATEMENT_DAYS_MAX = 400
"""The longest time that one statement covers: a year, and a month to compare with."""

STATEMENT_DAYS = 30
"""What a statement covers if nothing else is asked for."""

OWNERS_REDEEMED_AT_ONCE = 1_000
"""Owners who share the treasury's budget in one round, those with the most promo income first."""

PAYOUT_LEAVES_MAX = 1 << 20
"""Accounts in one payout root: what the settlement contract takes."""

REFERENCE_CHARS_MAX = 100
"""Names that clients give to grants and deposits, so that asking twice does it once."""

CHAIN_CALL_S = 10.0
"""One question to a chain's node; a healthy one answers within a second."""

CHAIN_BLOCKS_AT_ONCE = 500
"""Blocks whose events are fetched in one go; public nodes refuse ranges of some thousands."""

CHAIN_EVENTS_AT_ONCE = 20_000
"""Events that one go may bring, about 20 MB; a range with more is halved."""

CHAIN_BLOCKS_KEPT = 256
"""Hashes of the last blocks, to find where a chain went another way; one that goes back further is read anew."""

CHAIN_WINDOW_BLOCKS = 64
"""Blocks behind the head whose hashes are noted one by one; no chain in use goes back further by itself."""

CHAIN_DEPTH_MAX = 1_000
"""Blocks one may want on top of a transaction; more is hours on any chain."""

OUTBOX_SIGNED_AT_ONCE = 16
"""Transactions that get a nonce in one round; each is a few questions to the chain."""

OUTBOX_OPEN_MAX = 64
"""Transactions of one key under way at once: nodes keep about as many of a sender in their pool."""

OUTBOX_TRIES_MAX = 5
"""How often a transaction that the contract would refuse is tried before that counts as its answer."""

OUTBOX_CALL_BYTES_MAX = 128 * KIB
"""What nodes take as one transaction."""

OUTBOX_VERSIONS_MAX = 20
"""Times that a transaction's fee is raised: by an eighth each, that is more than tenfold."""

DELIVERED_AT_ONCE = 100
"""Final events handed over in one go."""

CHAIN_RPC_BODY_BYTES_MAX = 512 * KIB
"""What the gateway passes on to the chain: one raw transaction is at most 256 kB of hex digits."""

CHAIN_RPC_BATCH_MAX = 50
"""Calls in one body; clients batch reads by the dozen."""

CHAIN_RPC_REPLY_BYTES_MAX = 16 * MIB
"""What the chain may answer through the gateway; a thousand events are about 1 MB."""

CHAIN_RPC_PER_S = 20.0
"""Calls a second that one key may make through the gateway, for as long as it likes: a follower needs two."""

CHAIN_RPC_BURST = 200
"""Calls that one key may make at once after a pause: a node that catches up."""

CHAIN_STATE_BYTES_MAX = 512 * MIB
"""A local chain's whole state: about 150,000 transactions. It is for trying things out."""

CHAIN_REQUESTS_OPEN_MAX = 20
"""Deposits and claims of one account that wait for the chain; each takes seconds, and more is a loop."""

CHAIN_REQUESTS_AT_ONCE = 16
"""Deposits and claims that become transactions in one round; each is a few questions to the chain."""

CHAIN_REQUEST_WAIT_S = 20.0
"""How long an HTTP request waits for a deposit or claim to be final: seconds on a local chain. It goes on after."""

CLAIM_ADDRESSES_MAX = 20
"""Addresses of one account whose earnings are claimed in one go; nearly all have one."""

DEPOSIT_PARTS_MAX = 1_000
"""Of a deposit by chain, in sums that may be moved at once: a billion dollars. Sums of many such still fit a bigint."""

OWN_WHEEL_BYTES_MAX = 16 * MIB
"""What a gateway keeps in memory to hand out as its own package; it is under one."""

RESPONSE_ITEMS_MAX = 10_000
"""Items in one request: an agent's day of messages, calls and their results."""

RESPONSE_TOOLS_MAX = 512
"""Functions offered to one request; models lose their way among a tenth of that."""

RESPONSE_CHAIN_MAX = 1_000
"""Stored responses that one goes on from, one after another; its context is full long before."""

RESPONSES_STORED_S = 24 * 3600.0
"""How long a stored response is kept. A promise: nothing makes it longer."""

RESPONSES_STORED_PER_KEY_MAX = 10_000
"""Stored responses of one key: one every nine seconds, all day."""

RESPONSES_STORED_BYTES_PER_KEY_MAX = 256 * MIB
"""What they may take together: a dozen of the largest, or all of them at 26 kB each."""

RESPONSES_IN_BACKGROUND_PER_KEY_MAX = 20
"""Answers of one key that are written while nobody listens; each is held in memory until it is stored."""

RESPONSES_RUNNING_MAX = 10_000
"""Answers under way at one gateway that can be cancelled by name (about 500 bytes each)."""

RESPONSE_LOG_BYTES_MAX = 4 * MIB
"""Events of an answer in the background that are kept for who comes back to its stream: some 15,000 tokens."""

RESPONSE_CANCEL_S = 5.0
"""How long a request to cancel waits for the gateway that writes the answer; it is asked once a second."""

FEED_VIEWERS_MAX = 1_000
"""Who may watch one gateway at once; each holds a socket and nothing else."""

FEED_VIEWERS_PER_ADDRESS_MAX = 50
"""Of those, from one address: an office, or a wall of screens."""

FEED_WRITE_S = 20.0
"""A viewer that takes nothing for this long is gone."""

HISTORY_POINTS_MAX = 3_000
"""Points of one line: a day by minutes, or two months by hours."""

HISTORY_CACHED_MAX = 64
"""Lines kept ready for a few seconds, since many look at the same."""

WEB_ASSET_BYTES_MAX = 8 * MIB
"""One file of the dashboard; they are held in memory."""

METRICS_MODELS_MAX = 100
"""Models with a line of their own among a gateway's figures, about 50 series each; the rest is counted together."""

PULSE_NODES_MAX = 40
"""Nodes that an operator's live picture tells of: as many as a tall terminal has lines."""
