"""A real Kubernetes control plane on loopback, for the tests and for people. Knows nothing of dovetail.

recipes   which programs, at which version, are built from which Go module
building  builds them once into the user's cache
binaries  where they are: KUBEBUILDER_ASSETS or the cache
process   a child process that never outlives us
users     who may come in, with which token
plane     etcd, the API server and, when asked, the controller manager and kube-scheduler
client    a small synchronous client of the API server
slate     deletes what a test made
pod_groups  the CustomResourceDefinitions of PodGroups
access    what the user `dovetail` may do
objects   nodes and pods in a few words
kubelet   a stand-in kubelet for every node, with follow (list and watch) and hami_plugin (HAMi's half of a node)
"""
