"""What sentences state as an answer, deny, or take back. They know nothing of what an answer is worth."""
