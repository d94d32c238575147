"""One module a kind of job: how a batch becomes a call, and its answer one result a job."""
