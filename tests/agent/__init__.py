"""A scripted coding agent that drives a campaign through bin/ alone."""
