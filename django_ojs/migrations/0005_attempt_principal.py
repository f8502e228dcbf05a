import django_ojs.models.fields
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("django_ojs", "0004_room_for_beats")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="principal",
            field=django_ojs.models.fields.TokenField(
                max_length=255, null=True, verbose_name="credential"
            ),
        ),
    ]
