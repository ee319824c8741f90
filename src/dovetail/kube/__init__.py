"""Kubernetes' objects ↔ the model.

Pure functions over documents; no clock and no network, except in `live` and `api`.
"""
