"""Session memory: notes that survive disconnects and lost context."""
