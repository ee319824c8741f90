"""What would happen: traces, virtual time, measures, reports. Drives the engine's Scheduler; decides nothing itself."""
