"""OpenAI's own specification of the routes that a gateway has, and checks of replies against it."""
