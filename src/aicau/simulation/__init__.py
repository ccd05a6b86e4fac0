"""Many runs of the round at once."""
