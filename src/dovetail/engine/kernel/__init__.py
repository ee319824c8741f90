"""Choosing a node and its devices: functions over arrays, interpreted or compiled. Knows policies and the model."""
