"""The model: requests, nodes, devices, decisions and reasons, as frozen values and integers."""
