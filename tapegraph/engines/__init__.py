"""Engines: their contract, their registry and the choice among them."""
