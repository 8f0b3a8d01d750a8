"""Types of policy fields: how each is parsed, composed over levels, checked against a node, loosened and written."""
