"""The OpenAI endpoints that models answer: how each reads a body. `edge/exchange.py` serves them."""
