"""Tasks T: a law on problems; and samplers S: a law on batches of them."""
