"""The match of one order, as state machines without sockets or clocks."""
