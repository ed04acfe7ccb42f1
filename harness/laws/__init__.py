"""Are the declared laws true? Tests of S, R, F and the seeds, with declared error rates."""
