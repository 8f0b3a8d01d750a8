"""Inference jobs on this node: refused, or run on the model server, with a signed receipt each."""
