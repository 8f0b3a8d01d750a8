"""A gateway of several processes: which others are up, and the questions they ask each other over loopback."""
