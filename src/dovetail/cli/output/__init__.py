"""Results as text: tables, pictures, JSON, logs. Decides nothing."""
