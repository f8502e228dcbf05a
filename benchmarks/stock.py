"""A plain ``ModelAdmin`` over the same table, as job queues usually register one; and both sites."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from django_ojs.models import Job

stock = admin.AdminSite(name="stock")


@admin.register(Job, site=stock)
class StockJobAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Columns, filters, search and dates by Django's own means."""

    list_display = ("id", "type", "queue", "state", "attempt", "created_at")
    list_filter = ("state", "queue", "type")
    search_fields = ("type", "args")
    date_hierarchy = "created_at"
    ordering = ("-created_at",)
    list_per_page = 50


urlpatterns = [path("admin/", admin.site.urls), path("stock/", stock.urls)]
