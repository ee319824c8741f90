"""Policies: one file each, pure functions that run interpreted or compiled."""
