"""Encryption of payloads."""
