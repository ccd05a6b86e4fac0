"""A campaign's report: one HTML file."""
