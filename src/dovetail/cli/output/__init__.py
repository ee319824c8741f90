"""Formats results as text: tables, pictures, JSON, logs."""
