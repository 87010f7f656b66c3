"""What NeMo-RL recipes say: inheritance, entry point, metric, limits, and where they write."""
