"""What ``python -m tapegraph`` does, a command a file."""
