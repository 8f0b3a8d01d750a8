"""What the gateway did. A finished job is counted once (`job_counter`); history, metrics, feed and pulse are views."""
