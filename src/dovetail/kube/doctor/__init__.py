"""The checks of `dovetail doctor`: what is wrong on a cluster, and what to do about it. It only reads."""
