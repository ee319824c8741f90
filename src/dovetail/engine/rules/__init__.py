"""Kubernetes' rules between pods, nodes and volumes, evaluated for all nodes at once."""
