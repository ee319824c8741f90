"""What developing dovetail takes and dovetail itself does not: nothing in here is installed with it."""
