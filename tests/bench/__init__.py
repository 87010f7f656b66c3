"""`make bench`: what autoresearch costs, side by side with the same work done by hand (see docs/performance.md)."""
