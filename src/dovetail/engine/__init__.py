"""The engine: the ledger, the kernel that places groups on it, the scheduler around them, and explanations."""
