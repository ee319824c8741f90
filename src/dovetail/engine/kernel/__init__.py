"""The kernel: functions over arrays that choose a node and its devices, interpreted or compiled.

It imports only policies and the model.
"""
