"""Where the members of a gang go relative to each other: domains, roles, and the bounded search."""
