"""The interface of an agent, its updates, and its placement: in one process, several, or on Ray.

It knows no algorithm's formula.
"""
