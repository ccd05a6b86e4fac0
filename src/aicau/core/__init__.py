"""What everything stands on: errors, checks, random streams, Ω and its decomposition, divergences, statistics."""
