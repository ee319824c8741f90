"""Why a pod is placed where it is, why it waits, and which change would place it."""
