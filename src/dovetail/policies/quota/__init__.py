"""Quota arithmetics: how much of a resource each queue may have, is owed, and may take back from other queues.

One file per arithmetic, integers only, no clock. `table.py` names them. The engine keeps the tree and the counts
(engine/rights/queues.py).
"""
