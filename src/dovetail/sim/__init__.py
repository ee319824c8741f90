"""The simulator: traces, virtual time, measures, reports. The engine's Scheduler makes all decisions."""
