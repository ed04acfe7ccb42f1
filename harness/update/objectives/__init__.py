"""What an update minimises: one loss a file, normalised once over the whole batch."""
