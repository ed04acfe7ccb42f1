"""A: what a round cost, rejected work included."""
