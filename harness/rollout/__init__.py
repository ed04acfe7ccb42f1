"""R: rolling a stamped policy out in a versioned environment."""
