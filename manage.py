#!/usr/bin/env python
"""Django's command line for HACRL Web."""

import os
import sys

from django.core.management import execute_from_command_line

from hacrl_web.accounts.audit.actor import acting, of_command

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")
    with acting(of_command(sys.argv[1:])):
        execute_from_command_line(sys.argv)
