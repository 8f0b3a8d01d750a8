"""A gateway of several processes: what each knows of the others, and what they ask each other."""
