"""The model that is trained: data, partitions, engines."""
