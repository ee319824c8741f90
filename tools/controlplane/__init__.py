"""A real Kubernetes control plane on loopback, for tests and for users. Of dovetail, it imports only own_folder.

recipes   which programs, at which version, are built from which Go module
building  builds them once into the user's cache
binaries  where they are: KUBEBUILDER_ASSETS or the cache
process   a child process that ends with this process
users     the users of the API server, and their tokens
plane     etcd, the API server and, on request, the controller manager and kube-scheduler
client    a small synchronous client of the API server
slate     deletes the objects that a test created
pod_groups  the CustomResourceDefinitions of PodGroups
access    the rights of the user `dovetail`
objects   builds nodes and pods
kubelet   a stand-in kubelet for every node, with follow (list and watch) and hami_plugin (HAMi's half of a node)
"""
