"""Local runs: supervision, processes, memory, disk, devices."""
