"""Pictures of what was recorded: the graph, folded, laid out, and written."""
