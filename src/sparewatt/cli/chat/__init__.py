"""`sparewatt chat`: ask a model from the terminal."""
