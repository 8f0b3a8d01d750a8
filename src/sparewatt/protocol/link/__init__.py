"""What gateway and node say to each other over one WebSocket: frames, reports, receipts."""
