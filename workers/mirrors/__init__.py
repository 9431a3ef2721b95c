"""The follower's writers: one run to TensorBoard, MLflow, W&B or Trackio, in a process of its own.

They know no database, no Django and of ours only the form of a row (`contract/mirrored_rows.py`): what they write comes
by standard input (destination.py).
"""
