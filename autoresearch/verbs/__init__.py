"""One module a verb; `run()` does it, reads its knobs from `autoresearch.knobs` and returns the exit code."""
