from django.db import migrations, models

import django_ojs.models.indexes
from django_ojs.domain.states import State
from django_ojs.store.migration_operations import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("django_ojs", "0006_beats_of_held_rows")]

    operations = [
        AddIndexOnline(
            model_name="job",
            index=django_ojs.models.indexes.HotIndex(
                within=["state"],
                fields=["-priority", "enqueued_at", "id"],
                name="ojs_job_claim_any",
                only=models.Q(state=State.AVAILABLE),
            ),
        )
    ]
