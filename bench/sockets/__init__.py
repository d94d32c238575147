"""Load on the WebSocket interface, and the same on RabbitMQ: one process with clients of its own, without libraries."""
