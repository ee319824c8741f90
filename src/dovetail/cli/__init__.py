"""The command line: reads arguments; prints tables, pictures and JSON. Decisions are made in other packages."""
