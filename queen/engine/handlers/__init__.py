"""One module per kind of job: makes a call of a batch, and a result for each job of its answer."""
