"""What several kernel families share."""
