"""How each sort of field is read, composed over levels, checked against a node, loosened and written."""
