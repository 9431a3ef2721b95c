"""What samples rollouts: the trainer's own model, or vLLM in a process beside it. It knows no reward."""
