"""What model servers report of themselves, page by page."""
