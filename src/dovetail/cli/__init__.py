"""The front door: arguments in, tables, pictures and JSON out. The deciding is done elsewhere."""
