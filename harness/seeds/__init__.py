"""Declared joint laws of the seeds ω_n, and the counter-based generator behind them."""
