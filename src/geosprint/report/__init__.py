"""Everything that has a colour."""
