"""Model servers that a node can serve with. `backend` is the interface; each adapter is one file."""
