"""One file for each algorithm: settings, advantages, loss, and the explanation of a weight.

It loads torch at its first use only, and knows no trainer.
"""
