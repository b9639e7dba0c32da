"""Pictures of recorded graphs: folded, laid out and written."""
