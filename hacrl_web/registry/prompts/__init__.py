"""What each agent of a group reads for a question of a benchmark."""
