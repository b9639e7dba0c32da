"""Batches of cotangents, which one sweep takes together."""
