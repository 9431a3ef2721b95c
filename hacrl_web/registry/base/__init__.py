"""What the registry's packages share: checked values and places, forms, lists, child processes. No subject."""
