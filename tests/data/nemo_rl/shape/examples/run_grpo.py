"""Stands for a program of the project."""
