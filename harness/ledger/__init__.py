"""The append-only ledger L on MLflow's own store: records, their chain, and their pages."""
