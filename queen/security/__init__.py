"""Encryption of payloads, authentication and authorization."""
