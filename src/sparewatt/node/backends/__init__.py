"""Model servers that a node can front. `model` is what the agent needs of one; each adapter is one file."""
