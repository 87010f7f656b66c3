"""The thin Python core of autoresearch; `bin/` calls it as `python -I -m autoresearch VERB`."""

__version__ = "0.1.0"
