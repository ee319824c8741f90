"""kube-scheduler's extender protocol: it has the queue and asks, the live scheduler decides and binds."""
