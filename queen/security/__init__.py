"""Encryption of payloads, and who may do what."""
