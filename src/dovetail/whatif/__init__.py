"""What would happen to given objects: plans, explanations and suggestions as values."""
