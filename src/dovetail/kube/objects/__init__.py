"""Kubernetes' objects as typed values, the bounds of their fields, and the problems found in them."""
