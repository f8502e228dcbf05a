"""The routes that gunicorn serves: ours, and a bare DRF create beside them."""

from __future__ import annotations

from django.urls import include, path
from rest_framework import generics, serializers
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer

from benchmarks.systems.on_ojs.models import BareJob


class BareSerializer(serializers.ModelSerializer):
    """Validated as DRF does it by itself."""

    class Meta:
        model = BareJob
        fields = (
            "id", "queue", "type", "state", "priority", "attempt", "max_attempts", "args", "meta",
            "created_at", "scheduled_at", "started_at", "finished_at",
        )  # fmt: skip
        read_only_fields = ("id", "state", "attempt", "created_at", "started_at", "finished_at")


class BareCreate(generics.CreateAPIView):
    """A create without authentication, permissions or throttles."""

    queryset = BareJob.objects.all()
    serializer_class = BareSerializer
    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    parser_classes = (JSONParser,)
    renderer_classes = (JSONRenderer,)


urlpatterns = [
    path("bare/jobs", BareCreate.as_view()),
    path("", include("django_ojs.urls")),
]
