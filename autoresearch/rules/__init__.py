"""When a campaign ends, and what a run's number is worth."""
