"""The gateway process: HTTP at the edge, thin. A route reads its input, calls a package below, writes a reply."""
