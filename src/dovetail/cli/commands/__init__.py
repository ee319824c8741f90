"""The commands of dovetail, one file each: its options, and the functions that it calls."""
