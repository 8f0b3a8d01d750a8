"""What renters reach of their leases on this node: logs, commands in the container, ports."""
