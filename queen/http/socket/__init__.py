"""Consumption over a WebSocket: the protocol ``queen.v1`` of ``docs/websocket.md``."""
