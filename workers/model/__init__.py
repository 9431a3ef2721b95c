"""One agent's model: loading, prompts, LoRA, sharding, the optimizer and its rollback. It knows no other agent."""
