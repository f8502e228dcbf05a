"""The text of metrics: what a Prometheus parses, and nothing that it would not."""

from __future__ import annotations

from django_ojs.domain.exposition import Family, Histogram, render

ODD = 'a"b\\c\nd'


def test_a_counter_and_a_gauge() -> None:
    counter = Family("ojs_x_total", "counter", "What\nhappened.", ("queue",), {("b",): 2, (ODD,): 1.5})
    gauge = Family("ojs_y", "gauge", "How many.", (), {(): 3})
    assert render([counter, gauge]) == (
        "# HELP ojs_x_total What\\nhappened.\n"
        "# TYPE ojs_x_total counter\n"
        'ojs_x_total{queue="a\\"b\\\\c\\nd"} 1.5\n'
        'ojs_x_total{queue="b"} 2\n'
        "# HELP ojs_y How many.\n"
        "# TYPE ojs_y gauge\n"
        "ojs_y 3\n"
    )


def test_openmetrics() -> None:
    """The family of a counter has no suffix there, and the end is marked."""
    text = render([Family("ojs_x_total", "counter", "All.", (), {(): 1})], openmetrics=True)
    assert text == "# HELP ojs_x All.\n# TYPE ojs_x counter\nojs_x_total 1\n# EOF\n"


def test_a_histogram() -> None:
    value = Histogram([(0.005, 1), (1.0, 3)], 4, 12.25)
    text = render([Family("ojs_z_seconds", "histogram", "Long.", ("queue",), {("q",): value})])
    assert text.splitlines()[2:] == [
        'ojs_z_seconds_bucket{queue="q",le="0.005"} 1',
        'ojs_z_seconds_bucket{queue="q",le="1"} 3',
        'ojs_z_seconds_bucket{queue="q",le="+Inf"} 4',
        'ojs_z_seconds_sum{queue="q"} 12.25',
        'ojs_z_seconds_count{queue="q"} 4',
    ]


def test_a_metric_without_samples_is_declared() -> None:
    assert render([Family("ojs_y", "gauge", "None.")]) == "# HELP ojs_y None.\n# TYPE ojs_y gauge\n"


def test_too_much_text_has_fewer_buckets() -> None:
    value = Histogram([(float(n), n) for n in range(1, 9)], 9, 1.0)
    families = [Family("ojs_z", "histogram", "Long.", ("queue",), {("q",): value})]
    most = 10_000
    for bounds in (8, 4, 2, 0):
        text = render(families, most=most)
        assert text.count("le=") == bounds + 1
        assert 'le="+Inf"} 9' in text
        most = len(text) - 1
