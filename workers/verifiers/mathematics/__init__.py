"""The rules of mathematical answers: which text is the answer, and whether it equals the reference.

Text alone decides in the trainer's process; an algebra system is loaded in the child process alone.
"""
