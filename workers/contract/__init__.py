"""What web and trainer agree on: settings, events, spool, checkpoint manifest, memory estimate, number formats.

No torch, no Django.
"""
