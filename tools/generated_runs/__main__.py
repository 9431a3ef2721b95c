"""`./hacrl seed_demo_data`: stores generated runs in the data folder of this installation."""

import os
import sys

import django

from hacrl_web.ops.up import name_running_product

if __name__ == "__main__":
    name_running_product()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hacrl_web.settings")
    django.setup()
    from tools.generated_runs.command import Command

    Command().run_from_argv(["hacrl", "seed_demo_data", *sys.argv[1:]])
