"""The inference path between the HTTP edge and the link: match a job, dispatch it, count what came back."""
