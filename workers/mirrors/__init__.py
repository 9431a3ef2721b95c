"""The follower's writers: one run to TensorBoard, MLflow, W&B or Trackio, in a process of its own.

They know no database, no Django and nothing else of ours: what they write comes by standard input (destination.py).
"""
