from django.db import models


class Note(models.Model):
    run = models.ForeignKey("runs.Run", on_delete=models.CASCADE, related_name="notes_of_feature")
    text = models.TextField()
