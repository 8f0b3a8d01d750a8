"""`/api/…`: Ollama's API, translated to chats, completions and embeddings for nodes, and back."""
