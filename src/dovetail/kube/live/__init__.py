"""Dovetail as a scheduler on a live cluster: reports of the API server become events, decisions become writes."""
