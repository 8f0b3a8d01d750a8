"""What is wrong with a node, in plain words, and what to do about it. Looks and asks; changes nothing."""
