"""One file a command of dovetail: its options, and what it calls."""
