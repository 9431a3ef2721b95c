"""`./hacrl up`: starts, watches and ends the processes of an installation, backs it up and checks it.

It knows no app.
"""
