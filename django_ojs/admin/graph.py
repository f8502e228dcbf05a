"""The graph of a workflow as SVG: boxes that are links, in layers from top to bottom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from django.contrib.admin.sites import AdminSite
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_ojs.admin import charts, links
from django_ojs.domain.graph import Layout, Position, layout
from django_ojs.domain.workflow import CALLBACK_NAMES, ORDERED
from django_ojs.models import Job, Workflow
from django_ojs.services.workflows.read import PENDING, Member

MOST_BOXES = 50
MOST_LINES = 150
MOST_BESIDE = 12
"""Members of a group with a box each; more are one box."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 164, 46, 16, 34
_LETTERS = 18
_PAD, _MARGIN = 9, 4

LABELS = {
    **{str(state): label for state, label in (*Workflow.States.choices, *Job.States.choices)},
    PENDING: gettext_lazy("waits"),
}
"""The states of members in words."""
TONES = {
    "completed": "good",
    "active": "run",
    "running": "run",
    "available": "run",
    "retryable": "warn",
    "discarded": "bad",
    "failed": "bad",
}
"""The colours of the states of members; others are grey."""


class Box(NamedTuple):
    """A node: its two lines of text, its colour, what it is called in full, and where it leads.

    A ``joint`` is a dot where the members meet before the callbacks.
    """

    name: str
    words: str
    tone: str
    label: str
    url: str = ""
    joint: bool = False


def graph(row: Workflow, members: Sequence[Member], site: AdminSite) -> SafeString | None:
    """The picture, or ``None`` where a table says more: too many boxes, or too many lines."""
    boxes, depends_on = _nodes(row, members, site)
    lines = sum(map(len, depends_on))
    if not boxes or len(boxes) > MOST_BOXES or lines > MOST_LINES:
        return None
    return _draw(boxes, layout(depends_on))


def url_of(member: Member, site: AdminSite) -> str:
    """The page of a member, empty for one that was never started."""
    if member.workflow_id is not None:
        return links.page_of(site, "workflow", member.workflow_id)
    return links.page_of(site, "job", member.job_id) if member.job_id is not None else ""


def _nodes(
    row: Workflow, members: Sequence[Member], site: AdminSite
) -> tuple[list[Box], list[list[int]]]:
    own = [one for one in members if one.index >= 0]
    callbacks = [one for one in members if one.index < 0]
    if row.kind not in ORDERED and row.total > MOST_BESIDE:
        boxes = [_many(row, own, site)]
        depends_on: list[list[int]] = [[]]
    else:
        boxes = [_box(one, site) for one in own]
        places = {one.index: place for place, one in enumerate(own)}
        depends_on = [[places[i] for i in one.depends_on if i in places] for one in own]
    if callbacks:
        used = {place for needed in depends_on for place in needed}
        last = [place for place in range(len(boxes)) if place not in used]
        if len(last) > 1:
            boxes.append(Box("", "", "quiet", "", joint=True))
            depends_on.append(last)
            last = [len(boxes) - 1]
        boxes += [_box(one, site) for one in callbacks]
        depends_on += [list(last) for _ in callbacks]
    return boxes, depends_on


def _box(member: Member, site: AdminSite) -> Box:
    """The state comes before what may be too long for the box. Without a name the type is shown."""
    name = CALLBACK_NAMES.get(member.index, member.key)
    state = str(LABELS.get(member.state, member.state))
    label = f"{name}: {member.type} · {state}"
    tone, url = TONES.get(member.state, "quiet"), url_of(member, site)
    if name == f"step-{member.index}":
        return Box(member.type, state, tone, label, url)
    return Box(name, f"{state} · {member.type}", tone, label, url)


def _many(row: Workflow, own: Sequence[Member], site: AdminSite) -> Box:
    """One box for a large group: how many there are, and what became of them."""
    types = Counter(one.type for one in own)
    name = ngettext("%s job", "%s jobs", row.total) % charts.plain(row.total)
    if len(types) == 1:
        name = f"{next(iter(types))}: {charts.plain(row.total)}"
    parts = [(row.failed, _("%s failed")), (row.open, _("%s open")), (row.completed, _("%s done"))]
    words = " · ".join(said % charts.plain(count) for count, said in parts if count)
    tone = "bad" if row.failed else "run" if row.open else "good" if row.is_complete else "quiet"
    url = links.list_of(site, "job", q=f"workflow:{row.id}")
    return Box(name, words, tone, f"{name}: {words}", url)


def _draw(boxes: Sequence[Box], found: Layout) -> SafeString:
    width = found.columns * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    height = found.layers * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    return format_html(
        '<svg class="ojs-chart ojs-graph" role="group" aria-label="{}" width="{}" height="{}"'
        ' viewBox="0 0 {} {}"><g aria-hidden="true">{}</g>{}</svg>',
        _("The members in the order in which they start: the table below says the same"),
        width,
        height,
        width,
        height,
        format_html_join(
            "",
            '<path class="ojs-edge" d="{}"/>',
            ((_curve(line, boxes, found),) for line in found.lines),
        ),
        format_html_join("", "{}", ((one,) for one in _shapes(boxes, found))),
    )


def _shapes(boxes: Sequence[Box], found: Layout) -> Iterator[SafeString]:
    """In the order in which they are read, line by line: the keyboard goes from link to link so."""
    for box, place in sorted(
        zip(boxes, found.places, strict=True), key=lambda pair: (pair[1].layer, pair[1].column)
    ):
        x, y = _corner(place)
        if box.joint:
            yield format_html(
                '<circle class="ojs-joint" cx="{}" cy="{}" r="5" aria-hidden="true"/>',
                x + _WIDTH / 2,
                y + _HEIGHT / 2,
            )
            continue
        # An inner picture ends at its edges, however wide the letters of a text are.
        shape = format_html(
            '<rect class="ojs-node ojs-{}" x="{}" y="{}" width="{}" height="{}" rx="5"/>'
            '<svg x="{}" y="{}" width="{}" height="{}">'
            '<text class="ojs-node-name" y="19">{}</text>'
            '<text class="ojs-node-words" y="36">{}</text></svg>',
            *(box.tone, x, y, _WIDTH, _HEIGHT),
            *(x + _PAD, y, _WIDTH - 2 * _PAD, _HEIGHT),
            _cut(box.name, _LETTERS),
            _cut(box.words, _LETTERS + 3),
        )
        if box.url:
            yield format_html(
                '<a href="{}" aria-label="{}"><title>{}</title>{}</a>',
                *(box.url, box.label, box.label, shape),
            )
        else:
            yield format_html(
                '<g role="img" aria-label="{}"><title>{}</title>{}</g>', box.label, box.label, shape
            )


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def _corner(place: Position) -> tuple[float, float]:
    x = _MARGIN + place.column * (_WIDTH + _GAP_X)
    return round(x, 1), _MARGIN + place.layer * (_HEIGHT + _GAP_Y)


def _curve(line: Sequence[Position], boxes: Sequence[Box], found: Layout) -> str:
    """From the bottom of the first box to the top of the last, upright through the layers between."""
    dots = {place for place, box in zip(found.places, boxes, strict=True) if box.joint}
    (x, y), path = _corner(line[0]), []
    x, y = x + _WIDTH / 2, y + (_HEIGHT / 2 if line[0] in dots else _HEIGHT)
    path.append(f"M{x} {y}")
    for place in line[1:]:
        left, top = _corner(place)
        to, end = left + _WIDTH / 2, top + (_HEIGHT / 2 if place in dots else 0)
        middle = (y + end) / 2
        path.append(f"C{x} {middle} {to} {middle} {to} {end}")
        x, y = to, end
        if place is not line[-1]:
            y = top + _HEIGHT
            path.append(f"V{y}")
    return " ".join(path)
