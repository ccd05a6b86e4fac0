"""The comparison with the field: outside the installed package."""
