from django.db import migrations, models


def fill(apps, schema_editor):
    """The scores of runs that were evaluated before the column existed."""
    runs = apps.get_model("runs", "Run").objects.filter(events__type="evaluation").distinct()
    for run in runs.only("pk", "spec").iterator(chunk_size=100):
        further = {one["benchmark"] for one in run.spec.get("evaluation", {}).get("benchmarks", ())}
        scores: dict[int, dict[str, float]] = {}
        events = run.events.filter(type="evaluation").order_by("attempt", "seq")
        for step, agent, payload in events.values_list("step", "agent", "payload"):
            is_own = payload.get("metric") == "accuracy" and payload.get("benchmark") not in further
            if is_own and payload.get("value") is not None:
                scores.setdefault(step or 0, {})[agent] = payload["value"]
        whole = [step for step in scores if len(scores[step]) == len(run.spec["agents"])]
        if whole:
            values = scores[max(whole)].values()
            type(run).objects.filter(pk=run.pk).update(score=sum(values) / len(values))


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0016_start_ratio_and_age"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="score",
            field=models.FloatField(blank=True, null=True),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
    ]
