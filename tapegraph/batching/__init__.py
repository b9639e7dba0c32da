"""Batching: how an operation runs on many examples at once."""
