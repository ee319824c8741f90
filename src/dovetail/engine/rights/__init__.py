"""Who may have how much: namespace quotas, and the members of gangs that hold a place."""
