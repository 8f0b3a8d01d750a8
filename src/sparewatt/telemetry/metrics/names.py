"""Name, kind and help text of every metric. `docs/reference/metrics.md` explains each one; a test compares.

That page also has the names that other projects use for the same: conventions are still moving.
"""

from __future__ import annotations

from sparewatt.telemetry.metrics.prometheus import Metric

# requests

REQUESTS = Metric("sparewatt_requests_total", "counter", "Jobs that are over, by model and outcome.")
REQUEST_ERRORS = Metric("sparewatt_request_errors_total", "counter", "Inference requests that got an error.")
FIRST_TOKEN = Metric("sparewatt_time_to_first_token_seconds", "histogram", "From dispatch to a stream's first token.")
PER_TOKEN = Metric("sparewatt_time_per_output_token_seconds", "histogram", "Mean of a stream after its first token.")
DURATION = Metric("sparewatt_request_duration_seconds", "histogram", "From dispatch to the end of an answer.")
TOKENS = Metric("sparewatt_tokens_total", "counter", "Tokens read (prompt) and written (completion) by finished jobs.")
MATCH_DURATION = Metric("sparewatt_match_duration_seconds", "histogram", "Time to choose a node.")
MATCH_CANDIDATES = Metric("sparewatt_match_candidates", "histogram", "Nodes that a choice was made among.")
CASCADE = Metric("sparewatt_cascade_total", "counter", "Attempts that ended without the answer, by reason.")
SEAMS = Metric("sparewatt_seams_total", "counter", "Answers that another node continued.")
QUEUE_WAIT = Metric("sparewatt_queue_wait_seconds", "histogram", "Time in the queue, of requests that had to wait.")
RUNNING = Metric("sparewatt_jobs_running", "gauge", "Jobs under way.")
MODEL_RUNNING = Metric("sparewatt_model_jobs_running", "gauge", "Jobs on nodes now, by model.")
WAITING = Metric("sparewatt_jobs_waiting", "gauge", "Requests in the queue.")
MODEL_WAITING = Metric("sparewatt_model_jobs_waiting", "gauge", "Requests in the queue, by model.")
FEED_VIEWERS = Metric("sparewatt_feed_viewers", "gauge", "Viewers of the live feed.")
RATE_METERS = Metric("sparewatt_rate_meters", "gauge", "Keys and addresses whose use is counted.")

# the network

NODES = Metric("sparewatt_nodes", "gauge", "Known nodes, by state.")
GPUS = Metric("sparewatt_gpus", "gauge", "GPUs of connected nodes.")
VRAM = Metric("sparewatt_vram_bytes", "gauge", "Memory for models of connected nodes.")
SLOTS = Metric("sparewatt_slots", "gauge", "Jobs that connected nodes can run at once.")
POWER = Metric("sparewatt_power_watts", "gauge", "Power draw of all nodes that report it.")
MODEL_NODES = Metric("sparewatt_model_nodes", "gauge", "Nodes that have a model, by its state there.")

# money

SPENT = Metric("sparewatt_credits_spent_micro_total", "counter", "Micro-USD that jobs cost, paid or promo.")
EARNED = Metric("sparewatt_earnings_micro_total", "counter", "Micro-USD that owners of nodes earned, paid or promo.")
UNPOSTED = Metric("sparewatt_books_unposted_jobs", "gauge", "Settled jobs that wait for the database.")
RECEIPTS_REFUSED = Metric("sparewatt_receipts_refused_total", "counter", "Receipts of nodes that were refused.")

# node by node

NODE_INFO = Metric("sparewatt_node_info", "gauge", "Always 1: what a node is.")
NODE_UP = Metric("sparewatt_node_up", "gauge", "1 while its link is up and it sends heartbeats.")
NODE_RUNNING = Metric("sparewatt_node_jobs_running", "gauge", "Jobs of the network that it runs.")
NODE_QUEUE = Metric("sparewatt_node_queue_depth", "gauge", "Jobs of the network that wait there.")
NODE_FOREIGN = Metric("sparewatt_node_foreign_requests", "gauge", "Requests at its server from outside the network.")
NODE_SLOTS = Metric("sparewatt_node_slots", "gauge", "Jobs that it can run at once.")
NODE_WARM = Metric("sparewatt_node_warm_models", "gauge", "Models that it has loaded.")
NODE_RTT = Metric("sparewatt_node_rtt_seconds", "gauge", "Round trip of its link.")
NODE_JOBS = Metric("sparewatt_node_jobs_total", "counter", "Jobs done or failed, since this gateway started.")
NODE_TOKENS = Metric("sparewatt_node_tokens_total", "counter", "Tokens that it wrote for finished jobs.")
NODE_POWER = Metric("sparewatt_node_power_watts", "gauge", "Power draw that it reports.")
NODE_GPU_USE = Metric("sparewatt_node_gpu_utilization_ratio", "gauge", "Share of time in which a GPU is busy.")
NODE_GPU_TEMPERATURE = Metric("sparewatt_node_gpu_temperature_celsius", "gauge", "Temperature of a GPU.")
NODE_GPU_POWER = Metric("sparewatt_node_gpu_power_watts", "gauge", "Power draw of a GPU.")
NODE_GPU_FREE = Metric("sparewatt_node_gpu_vram_free_bytes", "gauge", "Free memory of a GPU.")

# reported by a node's model server

SERVER_RUNNING = Metric("sparewatt_node_server_requests_running", "gauge", "Requests that its model server runs.")
SERVER_WAITING = Metric("sparewatt_node_server_requests_waiting", "gauge", "Requests its model server has not begun.")
SERVER_KV = Metric("sparewatt_node_server_kv_cache_usage_ratio", "gauge", "Share of memory for contexts in use.")
SERVER_READ = Metric("sparewatt_node_server_prompt_tokens_total", "counter", "Tokens its model server read.")
SERVER_WROTE = Metric("sparewatt_node_server_generation_tokens_total", "counter", "Tokens its model server wrote.")
SERVER_FIRST_TOKEN = Metric(
    "sparewatt_node_server_time_to_first_token_seconds", "summary", "Time to first token, by its model server."
)
SERVER_DURATION = Metric(
    "sparewatt_node_server_request_duration_seconds", "summary", "Time of whole requests, by its model server."
)

# the process

BUILD = Metric("sparewatt_build_info", "gauge", "Always 1: which release runs.")
READY = Metric("sparewatt_ready", "gauge", "1 while requests are taken, 0 while it stops.")
LINKS = Metric("sparewatt_links", "gauge", "Links to nodes.")
TASKS = Metric("sparewatt_tasks", "gauge", "Tasks of the event loop; most inference requests need none.")
LOOP_LAG = Metric("sparewatt_event_loop_lag_seconds", "histogram", "How late timers run: a request waits as long.")
CPU = Metric("process_cpu_seconds_total", "counter", "Processor time, user and system.")
RESIDENT = Metric("process_resident_memory_bytes", "gauge", "Memory in use.")
FDS = Metric("process_open_fds", "gauge", "Open files and sockets.")
FDS_MAX = Metric("process_max_fds", "gauge", "Limit of open files and sockets.")
STARTED = Metric("process_start_time_seconds", "gauge", "When it started, in Unix seconds.")
COLLECTIONS = Metric("python_gc_collections_total", "counter", "Rounds of the garbage collector, by generation.")
COLLECTED = Metric("python_gc_objects_collected_total", "counter", "Objects that it freed, by generation.")
