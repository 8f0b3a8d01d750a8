"""Translates OpenAI's `/v1/responses` into chat completions and back: most model servers have only those. Pure."""
