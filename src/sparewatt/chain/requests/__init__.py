"""Chain requests of accounts: a handler per kind makes their calls, the processor sends each once and finishes them."""
