"""A run at a glance: results, charts, influential rollouts. It computes no metric; the trainer does."""
