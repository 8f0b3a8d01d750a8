"""`sparewatt node doctor`: what is wrong with a node, in plain words, with advice. Changes nothing."""
