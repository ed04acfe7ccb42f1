"""Recorded rounds run again: compared stage by stage, exchanged, told apart, driven again."""
