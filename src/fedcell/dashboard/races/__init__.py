"""The races of a server: their queue, how far each is, and the events that tell."""
