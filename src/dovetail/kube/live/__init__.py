"""Dovetail as a scheduler on a live cluster: what the API server says becomes events, what we decide becomes writes."""
