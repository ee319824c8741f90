"""Dovetail: a device-aware GPU scheduler for Kubernetes."""

__version__ = "0.1.0"
