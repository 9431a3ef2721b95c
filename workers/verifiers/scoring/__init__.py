"""From a response to its verdict: the kinds of verifier, the service that asks their processes, second opinions, votes.

The rules stand in the other packages of verifiers, but for the shortest (`kinds.py`).
"""
