"""The HTTP servers for users and for the API server: sockets, TLS, bounds. What is served is decided in `kube`."""
