"""When the database was seen to answer: by this process, and by the recorded scans (decision T9).

A silence counts only time in which one of the two saw it. A loop keeps a :class:`Witness`; the
record of the scans has the time of the last one, and the spans without an answer. Who
judges without having looked itself has only the record, and its cadence.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from django_ojs.clock import LEAST_STEP
from django_ojs.domain.silence import Hearing, Span, common, united
from django_ojs.domain.timeouts import OUTAGE_GRACE
from django_ojs.models import MaintenanceRun
from django_ojs.store import due_times

NOTICED = timedelta(milliseconds=500)
"""How much longer than it should an answer may take, and count as one that came."""
_LONG_COMMIT = timedelta(seconds=1)
"""How long a commit may take, and count as one that did not wait for other servers."""
_KEPT_SPANS = 1000
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Witness:
    """What one looping process saw; ``every`` is the longest pause between its looks.

    To be used by one thread.
    """

    def __init__(self, every: timedelta) -> None:
        self._slack = every + NOTICED
        self._first: datetime | None = None
        self._seen_at: datetime | None = None
        self._wrote_at: datetime | None = None
        self._writing_at: datetime | None = None
        self._claiming: Span | None = None
        self._claimed: Span | None = None
        self._gaps: list[Span] = []
        self._suspect = False

    @property
    def suspect(self) -> bool:
        """Whether a write has failed, or waited, since the last that was done."""
        return self._suspect

    def doubt(self) -> None:
        """A write of this process failed: since its last one, heartbeats may have been impossible."""
        self._suspect = True
        self._writing_at = None

    def saw(self, now: datetime) -> None:
        """Record that the database answered at ``now``."""
        if self._first is None or self._seen_at is None or self._seen_at - now > LEAST_STEP:
            # A clock that was set back leaves nothing to compare with. One that is corrected, whenever
            # a quicker answer tells the time more precisely, goes back a little too.
            self._first, self._gaps, self._wrote_at = now, [], None
        elif now - self._seen_at > self._slack:
            self._add(Span(self._seen_at, now))
        self._seen_at = now

    def writes(self, asked_at: datetime, now: datetime, *, one_writer: bool) -> None:
        """A write that was begun at ``asked_at`` got its turn, and is to be committed.

        With ``one_writer``, all writers waited as this one did, perhaps since before it. So they did if
        it is tried again because its commit has failed.
        """
        self.saw(now)
        waited = now - asked_at > NOTICED
        if self._suspect or (waited and (one_writer or self._writing_at is not None)):
            self._add(Span(self._wrote_at or self._first or asked_at, now))
        elif waited:
            self._add(Span(asked_at, now))
        self._suspect = False
        self._writing_at = now

    def committed(self, now: datetime) -> bool:
        """The write, if there was one, is committed; return whether at once.

        A commit that waits, for a standby or for the other nodes of a cluster, proves as little as one
        that failed: a server on which nobody can commit still reads, and locks.
        """
        at_once = self._writing_at is None or now - self._writing_at <= _LONG_COMMIT
        if at_once:
            self._wrote_at = self._writing_at or self._wrote_at
        else:
            self._suspect = True
        self._claimed = self._claiming or self._claimed
        self._writing_at = self._claiming = None
        return at_once

    def claims(self, span: Span) -> Span:
        """A record of this time is to be committed. Returns it with the time of the last one, if that
        was ours, which may say too much: whether its commit waited, it could not know.
        """
        self._claiming = span
        known = self._claimed
        return span if known is None or known.end != span.start else Span(known.start, span.end)

    def gaps(self) -> list[Span]:
        """The time since the first look in which nothing was seen."""
        return list(self._gaps)

    def blind(self, now: datetime) -> list[Span]:
        """All the time in which nothing was seen, or nothing could be written."""
        doubtful = [Span(self._wrote_at or self._first or now, now)] if self._suspect else []
        return united([Span(_BEGINNING, self._first or now), *self._gaps, *doubtful])

    def _add(self, span: Span) -> None:
        if span.start < span.end:
            self._gaps = united([*self._gaps, span])[-_KEPT_SPANS:]
            if len(self._gaps) == _KEPT_SPANS:
                # What is forgotten was not seen: the record knows.
                self._first = self._gaps[0].start


def spans_of(run: MaintenanceRun) -> list[Span]:
    """The spans before the last recorded scan in which no process saw the database answer."""
    return [Span(*map(datetime.fromisoformat, pair)) for pair in run.blind or ()]


def gap(cadence_ms: int | None) -> timedelta:
    """How far apart two scans may be that are so far apart by habit."""
    return 3 * timedelta(milliseconds=cadence_ms or 0)


def record(run: MaintenanceRun, witness: Witness | None, now: datetime, *, suspect: bool) -> timedelta:
    """Write into ``run`` who saw what since the last scan; returns by how much execution deadlines are
    extended: as long as an outage that was found, and at most 15 s.
    """
    since = Span(run.last_run_at, now)
    apart = run.cadence_ms is not None and now - run.last_run_at > gap(run.cadence_ms)
    whole = [since] if since.start < since.end else []
    if witness is None:
        unseen = outages = whole if apart or suspect else []
    else:
        unseen = common(witness.blind(now), [witness.claims(since)] if whole else [])
        # What passed before a process began is no outage for that.
        outages = whole if apart and unseen else common(witness.gaps(), whole)
    spans = [span for span in spans_of(run) if span.start < now]
    if spans or unseen:
        longest = timedelta(milliseconds=due_times.longest_lease_ms(using=run._state.db or "default"))
        known = united([*(Span(one.start, min(one.end, now)) for one in spans), *unseen])
        run.blind = _stored(_that_matter(known, now, longest + gap(5000)))
    if not outages:
        return timedelta(0)
    run.resumed_at = outages[-1].end
    run.outages += 1
    return min(OUTAGE_GRACE, max(span.end - span.start for span in outages))


def _that_matter(spans: Sequence[Span], now: datetime, longest: timedelta) -> list[Span]:
    """The spans that may still excuse a missed heartbeat: those with less than ``longest`` of seen time
    since.

    Who was heard last before the others has been silent for too long without counting them.
    """
    kept: list[Span] = []
    seen, since = timedelta(0), now
    for span in reversed(spans):
        seen += since - span.end
        if seen >= longest:
            break
        kept.insert(0, span)
        since = span.start
    return kept


def _stored(spans: Sequence[Span]) -> list[list[str]]:
    return [[span.start.isoformat(), span.end.isoformat()] for span in _few(spans)]


def _few(spans: Sequence[Span]) -> list[Span]:
    """No more spans than are kept, and as long together as all of them.

    The oldest are moved together: what was seen between them counts as seen before them. For a worker
    last heard before them, the result is the same.
    """
    made = list(spans)
    while len(made) > _KEPT_SPANS:
        first, second = made[:2]
        made[:2] = [Span(second.start - (first.end - first.start), second.end)]
    return made


def transition(run: MaintenanceRun, step: timedelta) -> None:
    """Put the record by another clock."""
    run.blind = _stored([Span(span.start + step, span.end + step) for span in spans_of(run)])
    run.last_run_at += step
    if run.resumed_at is not None:
        run.resumed_at += step


def air(run: MaintenanceRun) -> Span | None:
    """The time after the last outage in which no attempt that it hit is ended for its deadline."""
    for span in spans_of(run):
        if span.end == run.resumed_at:
            return Span(span.end, span.end + min(OUTAGE_GRACE, span.end - span.start))
    return None


def hearing(
    run: MaintenanceRun | None, witness: Witness | None, now: datetime, *, suspect: bool = False
) -> Hearing:
    """What silences may be judged by at ``now``."""
    if run is None:
        return Hearing(now)
    spans = spans_of(run)
    until = now
    if witness is not None:
        unrecorded = [Span(run.last_run_at, now)] if run.last_run_at < now else []
        spans = common(witness.blind(now), united([*spans, *unrecorded]))
    elif run.loops or suspect or now - run.last_run_at > gap(run.cadence_ms):
        # Who has not looked itself counts what the loops have seen, and nothing after it.
        until = min(now, run.last_run_at)
    return Hearing(until, spans, air(run))
