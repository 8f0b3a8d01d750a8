"""`sparewatt top`: a live view of the network in the terminal."""
