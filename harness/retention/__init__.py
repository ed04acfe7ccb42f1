"""What stays of the values that records name, and what goes."""
