"""One run: its spec, its task, what the server knows, and the loop that trains against a simulated clock."""
