"""A gateway of several processes: who else is there, and what they ask each other."""
