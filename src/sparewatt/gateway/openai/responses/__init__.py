"""`/v1/responses`: told to nodes in chat completions, and kept for a day if the client asks for it."""
