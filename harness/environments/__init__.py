"""Environments Env^υ: pure functions on immutable states, seeded at reset, re-drivable."""
