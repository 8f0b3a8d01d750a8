"""Trust in nodes: pure rules for reputation and checked answers, without clock or I/O."""
