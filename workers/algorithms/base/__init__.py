"""What algorithms share: settings, gates, the terms of a weight, what is recorded. It names no algorithm."""
