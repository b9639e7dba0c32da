"""Engines: what one is, which there are, and which of them runs."""
