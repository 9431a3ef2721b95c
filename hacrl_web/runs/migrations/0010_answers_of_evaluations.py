from django.db import migrations, models
from django.db.models.deletion import CASCADE

TEXTS = {
    "QuestionChunk": ("ids", "subjects", "difficulties", "answers", "questions"),
    "AnswerChunk": ("marks", "majority", "responses"),
}


def columns(related_name):
    return [
        ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
        ("seq", models.BigIntegerField()),
        ("attempt", models.PositiveIntegerField()),
        ("benchmark", models.CharField(max_length=120)),
        ("first", models.PositiveIntegerField()),
        (
            "run",
            models.ForeignKey(db_index=False, on_delete=CASCADE, related_name=related_name, to="runs.run"),
        ),
    ]


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0009_sweep_requests_and_variants"),
    ]

    operations = [
        migrations.CreateModel(
            name="QuestionChunk",
            fields=[*columns("question_chunks"), *((name, models.TextField()) for name in TEXTS["QuestionChunk"])],
            options={"ordering": ["seq"]},
        ),
        migrations.CreateModel(
            name="AnswerChunk",
            fields=[
                *columns("answer_chunks"),
                ("step", models.PositiveIntegerField()),
                ("agent", models.CharField(max_length=80)),
                *((name, models.TextField()) for name in TEXTS["AnswerChunk"]),
            ],
            options={"ordering": ["seq"]},
        ),
        migrations.AddConstraint(
            model_name="questionchunk",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="questions_once"),
        ),
        migrations.AddIndex(
            model_name="questionchunk",
            index=models.Index(fields=["run", "benchmark", "first"], name="questions_place"),
        ),
        migrations.AddConstraint(
            model_name="answerchunk",
            constraint=models.UniqueConstraint(fields=("run", "seq"), name="answers_once"),
        ),
        migrations.AddIndex(
            model_name="answerchunk",
            index=models.Index(fields=["run", "benchmark", "step", "first"], name="answers_place"),
        ),
    ]
