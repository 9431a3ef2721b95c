"""The address of the Rollouts tab is the query: none is saved under a name any more."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("insight", "0001_saved_queries")]
    operations = [migrations.DeleteModel("SavedQuery")]
