"""Limits and turns: namespace quotas, gang members that hold a place, GPU time of jobs, preemption, rounds."""
