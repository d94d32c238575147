"""Load over HTTP by k6, and on WebSockets: scenarios, the server under test, its resources, and the results."""
