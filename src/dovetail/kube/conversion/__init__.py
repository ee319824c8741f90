"""Typed Kubernetes objects to the model: one reading, called for files and for watches."""
