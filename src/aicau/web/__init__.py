"""Campaigns as pages: `aicau serve` (the extra `web`)."""
