"""One round planned for a table of devices."""
