"""OpenAI's wire format as far as routing needs it: requests, replies, parameters."""
