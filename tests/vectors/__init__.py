"""Answers that are fixed: whoever implements the protocol of a match, in any language, must get the same bytes."""
