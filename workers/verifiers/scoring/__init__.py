"""From a response to its verdict: the kinds of verifier, the service that asks their processes, second opinions, votes.

No rule of a kind stands here.
"""
