"""`/v1/messages`: Anthropic's Messages API, translated to chats for nodes, and back."""
