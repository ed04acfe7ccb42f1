"""F: feedback on stopped trajectories."""
