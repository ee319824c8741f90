"""Tools for developing dovetail. They are not installed with it."""
