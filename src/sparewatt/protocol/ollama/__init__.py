"""Ollama's API, translated into chats, completions and embeddings, and back. Pure."""
