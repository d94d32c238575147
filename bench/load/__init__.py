"""Load over HTTP by k6: scenarios, the server under test, what it used, and what came out."""
