"""What decides between accept and reject, from the report of an update."""
