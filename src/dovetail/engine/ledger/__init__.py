"""The ledger: nodes as rows, devices as columns, pods and their entries. The only mutable state."""
