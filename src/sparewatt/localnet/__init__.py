"""A whole network on one machine: what `sparewatt up` starts, watches and stops."""
