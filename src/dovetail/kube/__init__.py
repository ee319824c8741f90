"""What is true: Kubernetes' objects ↔ the model. Pure functions over documents; no clock, no network here."""
