"""What would happen to these objects: plans, explanations and suggestions as values."""
