"""Checked answers: who is checked how often, how two answers are compared, and what a verdict means. Pure."""
