"""OpenAI's `/v1/responses`, told in chat completions: most model servers speak only those. Pure functions."""
