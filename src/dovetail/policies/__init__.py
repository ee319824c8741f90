"""What we prefer: one opinion per file, pure functions that run interpreted or compiled."""
