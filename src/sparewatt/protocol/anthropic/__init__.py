"""Anthropic's Messages API, translated into a chat and back. Pure."""
