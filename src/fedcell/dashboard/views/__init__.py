"""What the page shows, as documents."""
