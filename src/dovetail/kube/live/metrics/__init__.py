"""What Prometheus reads: the table of all metrics, their values, and the text format."""
