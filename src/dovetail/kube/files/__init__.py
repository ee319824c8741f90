"""Files and YAML text to documents, and documents to typed objects."""
