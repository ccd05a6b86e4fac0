"""A laboratory's campaign: ask, tell, predict."""
