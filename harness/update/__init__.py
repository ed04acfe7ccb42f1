"""U: proposing a new model and optimizer state, and deciding."""
