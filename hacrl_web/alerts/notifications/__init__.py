"""Messages on alerts and ends of runs: who gets one, and its way by mail or webhook. It evaluates no rule."""
