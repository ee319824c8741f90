"""Typed Kubernetes objects to the model: the same functions read files and watches."""
