"""How renters reach their leases through a gateway: traffic sockets of nodes, streams within bounds, tickets."""
