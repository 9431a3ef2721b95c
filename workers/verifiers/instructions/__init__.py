"""The form of a response: IFEval's instructions, and rewards for a box, tags, length and language.

Its content does not matter here.
"""
