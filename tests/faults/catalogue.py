"""The faults that are injected, by row: what happens, what must hold, and how urgent a test is.

Priority 1 is tested by ``make test``, 2 by ``make test-all`` or the soak or not yet, 3 is documented.
``S`` rows are threats rather than faults.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One row of the catalogue."""

    area: str
    fault: str
    holds: str
    priority: int


def _rows(area: str, text: str) -> dict[str, Row]:
    found = {}
    for line in text.strip().splitlines():
        name, priority, fault, holds = (part.strip() for part in line.split("|"))
        found[name] = Row(area, fault, holds, int(priority))
    return found


ROWS: dict[str, Row] = {
    **_rows(
        "The worker and its host",
        """
F1   | 1 | worker killed while handlers run | its processes die within 1 s, the job is retried
F2   | 1 | worker killed, its handler has detached children | none of them survives
F3   | 2 | the monitor of an executor killed | its executor dies, the worker goes on
F4   | 1 | worker suspended past the heartbeat timeout | the job runs elsewhere, late reports refused
F5   | 1 | executor suspended, worker alive | its timeout fires and kills it
F6   | 2 | the whole machine suspended | as a suspended worker; local deadlines count the pause
F7   | 2 | worker out of memory | executors are what the kernel ends first
F8   | 1 | TERM, jobs end in time | exit 0, jobs completed, beats go on, nothing claimed after it
F9   | 1 | TERM, a job outlives the shutdown | soft signal, kill, failure `shutdown`, never `timeout`
F10  | 1 | a second TERM | at once, failures are still reported
F11  | 1 | TSTP, then CONT | nothing claimed between the two, running jobs go on
F12  | 1 | INT to the whole process group | executors ignore it, the worker decides
F13  | 2 | standard output closed | neither the worker nor a job is lost
F14  | 2 | worker as process 1 | TERM works, zombies are reaped
F15  | 2 | no process can be started | claimed jobs are given back, with patience
F16  | 2 | no descriptors left in the worker | nothing lost, it recovers
F17  | 2 | two workers of one name | the newer one stays; leases are separate
F18  | 1 | the worker cannot beat | it stops claiming, then gives up what it has lost
F129 | 1 | a worker is cut off or suspended that runs `on_partition="stop"` | it ends in time
""",
    ),
    **_rows(
        "The handler",
        """
F19  | 1 | executor killed | learnt at once, failure `worker_crash` with the signal, the next job runs
F20  | 1 | segmentation fault, abort | the same, bounded by `max_attempts`
F21  | 1 | `os._exit(0)` | no success without a result
F22  | 1 | SystemExit, KeyboardInterrupt, any BaseException | a failure of that type, the executor lives
F23  | 1 | endless loop | soft signal at the timeout, killed at the end of the grace period
F24  | 1 | swallows every exception | killed at the end of the grace period, once
F25  | 1 | swallows `Exception` | the soft signal gets through
F26  | 1 | C code that does not come back | killed on time
F27  | 1 | C code that holds the interpreter lock | the worker is not affected, killed on time
F28  | 1 | blocks the soft signal | killed on time
F29  | 2 | replaces signal handlers, sets alarms | ours are back for the next job
F30  | 1 | the soft signal arrives as the handler returns | it never hits the next job
F31  | 1 | clean-up longer than the grace period | killed, failure `timeout`
F32  | 1 | clean-up uses the database | it works
F33  | 1 | soft signal inside a transaction | rolled back
F34  | 1 | starts children, also detached | dead with the handler
F35  | 1 | leaves threads running | the job completes, the executor is replaced
F36  | 1 | forks and returns twice | only the original answers
F37  | 1 | closes every descriptor | failure `worker_crash`, the worker goes on
F38  | 1 | writes garbage or forged frames on the channel | never a result
F39  | 1 | floods standard output and error | nothing blocks
F40  | 1 | result too large | failure `result_too_large`, memory bounded
F41  | 1 | result that is no JSON | failure `result_unserialisable` that names the path
F42  | 1 | result that a database refuses | the same, and the acknowledgement never fails for it
F43  | 1 | exception that cannot be printed | recorded by its type
F44  | 1 | recursion without end | a failure or a crash, recorded
F45  | 1 | out of memory in the handler | a failure or a crash; the next job runs
F46  | 2 | changes the process around it | replaced after so many jobs
F47  | 1 | leaves a transaction open | rolled back before the next job
F48  | 1 | type without a handler | not claimed; if claimed, a failure that can be retried
F49  | 1 | handler module fails or hangs at import | nothing claimed, the reason said, no hot loop
F50  | 1 | coroutine ignores its cancellation, or blocks the loop | killed on time
F51  | 2 | enqueues from within, with its own id | independent of the outcome, never twice
F52  | 1 | many crashing jobs in front of good ones | good jobs complete, attempts bounded
""",
    ),
    **_rows(
        "Leases and races",
        """
F53  | 1 | many claim the same jobs | one open lease per job
F54  | 1 | a claim under an unlucky plan | never more than asked for
F55  | 1 | two reapers at once | each expiry handled once
F56  | 1 | reaper against report | one wins, the other changes nothing
F57  | 1 | cancel against report | completed or cancelled, never one after the other
F58  | 1 | cancel of a running job | cancelled at once, stopped, its report refused
F59  | 1 | promotion against cancel and reap | guarded by the state
F60  | 1 | the same report twice | the same answer, one row of history
F61  | 1 | connection cut after the commit of a report | sent again: the same answer, no second effect
F62  | 1 | report with a wrong attempt, lease or worker | 409, nothing changed
F63  | 1 | bare report after a reap | refused while an earlier lease may live
F64  | 1 | beat for a job that is leased elsewhere | nothing extended, told as lost
F65  | 1 | report of attempt 1 after a manual retry | refused: leases are never used again
F66  | 1 | queue paused during a claim | nothing claimed after the pause has returned
F67  | 1 | client gone after its claim | delivered again after the heartbeat timeout
F68  | 1 | slow start of an executor | the clock runs from the claim
F69  | 1 | total timeout passes while waiting | discarded, never started
F70  | 1 | retry that cannot end within the total timeout | discarded at once
F71  | 1 | enqueue TTL against claim | exactly one of the two
""",
    ),
    **_rows(
        "The database",
        """
F72  | 1 | restarted during work | retried or recovered, no report lost
F73  | 1 | connections killed | retried, nothing violated
F74  | 2 | killed whole | everything acknowledged is there
F75  | 1 | down for longer than the heartbeat timeout | no job of a living worker is stalled
F76  | 1 | failover to read-only | 503 over HTTP; workers wait and keep their jobs
F77  | 1 | deadlock, serialization failure | run again, state right
F78  | 1 | lock timeout | rolled back whole, run again
F79  | 2 | statement and idle timeouts | no transaction is open while a handler runs
F80  | 1 | SQLite: a read becomes a write | write transactions begin as such
F81  | 1 | SQLite: unread rows | none are left unread
F82  | 2 | SQLite: writer killed | the file is whole, what was committed is there
F83  | 2 | SQLite: many workers | progress, nothing violated
F84  | 2 | disk full | never a false success, recovers
F85  | 2 | slow network | no false stalls
F86  | 1 | network cut without a word | noticed within 20 s, then as an outage
F130 | 1 | server suspended, its host acknowledges | noticed within 20 s; a slow statement is let alone
F87  | 1 | outcome of a commit unknown | enqueue and report can be sent again
F88  | 1 | transaction pooling in front | everything works, by polling
F89  | 1 | reads routed to a replica | the queue reads where it writes
F90  | 1 | jobs in another database than the business data | the right one is used, a check warns
F91  | 1 | enqueue in a transaction that rolls back | no job
F92  | 1 | on_commit hook raises, or the process dies before it | the job exists and is found
F93  | 1 | tests inside a transaction | time goes on there
F94  | 1 | many enqueue under one unique key | one job
F95  | 1 | migration while old workers run | old statements go on working
F96  | 1 | new workers before the migration | refuse to start, saying why
F97  | 2 | long transactions, dead rows | claims stay quick
F98  | 1 | stale statistics | the index is used
F145 | 1 | a Galera node without the majority of its cluster | as an outage: no report is refused
F146 | 1 | a Galera node that is behind takes over | workers find the leases that they hold
F147 | 1 | two nodes of a Galera cluster take the same job | the second claims again, and takes another
F140 | 1 | the replica that lists read fails, lags, or cancels a statement | the primary is read, no 5xx
F149 | 1 | one of two databases with queues is gone | the queues of the other go on, its jobs are found
F148 | 2 | a claim overlooks rows that nobody holds | the jobs come later, none is lost or run twice
""",
    ),
    **_rows(
        "Time",
        """
F99  | 1 | the worker's clock jumps | no effect
F100 | 2 | the database's clock jumps | no mass stall, nothing stuck
F101 | 1 | two web servers disagree about the time | no effect
F106 | 1 | durations and times out of range | refused
F107 | 1 | odd time formats | read or refused, as stated
""",
    ),
    **_rows(
        "Input",
        """
F108 | 1 | JSON nested without end | 400
F109 | 1 | JSON that one database refuses | the same limit on all
F110 | 1 | NUL in text | refused; replaced in error texts
F111 | 1 | lone surrogates | refused
F112 | 1 | NaN, infinities | refused
F113 | 1 | exponents that explode | refused or bounded
F114 | 1 | huge integers | refused, naming the field
F115 | 1 | a timeout of the wrong type | refused, naming the rule
F116 | 1 | limits that contradict each other | refused, naming the rule
F117 | 1 | priority out of range | refused
F118 | 1 | unusual letters in names | refused
F119 | 1 | names that differ in case or by a blank | different, or refused
F120 | 1 | body too large, or compressed to look small | 413
F121 | 1 | metadata too large, reserved keys | refused
F122 | 1 | batch too large, batch with one bad job | refused whole
F123 | 1 | fields that the system owns | never written
F124 | 1 | injection through filters, order, cursors | refused
F125 | 1 | filters and orders without an index | refused
F126 | 1 | odd ids, ids of others | 404
F128 | 1 | many retries at once | spread, promoted in batches
""",
    ),
    **_rows(
        "Security",
        """
S1  | 1 | no, bad, expired or revoked credential | refused on every route, whatever the defaults
S2  | 1 | a role that may not | refused: every route by every role
S3  | 1 | a credential of other queues | as if the job, queue or worker did not exist
S4  | 1 | ids of another tenant | the same answer as for none
S5  | 1 | a stolen lease | worth nothing to another credential; shown to its holder only
S6  | 1 | requests under another client's worker name | a worker of its own; the other's notices nothing
S7  | 1 | columns named in a body | never written
S8  | 1 | a session without its CSRF token | refused
S9  | 1 | staff without the permission | the action is neither shown nor done
S10 | 1 | script in every text | shown as text under a strict policy
S11 | 1 | secrets in arguments and errors | hidden from whoever may not see arguments
S12 | 1 | line breaks and escapes in what is logged | one line, escaped
S13 | 1 | large and compressed bodies | refused before they are read
S14 | 1 | nesting without end | refused before it is parsed
S15 | 1 | patterns, digits and names that take long | linear time
S16 | 1 | lists that cost much | only what an index serves
S17 | 1 | SQL in parameters | refused or a value
S20 | 1 | a job type that names a module | a name, nothing is imported
S21 | 1 | pickles and the like | JSON only
S23 | 1 | secrets in arguments of processes | not there
S24 | 1 | a burst of enqueues | 429
S25 | 1 | guessing tokens and ids | the same answer for all, then 429
S26 | 1 | editing the audit | no way to, and a row per action
S27 | 1 | headers that claim a tenant or a host | not believed
S28 | 1 | pages of other origins | no header lets them in
S29 | 1 | an error inside | a request id and nothing else
S30 | 1 | a stream after its token was revoked | ends; never shows what the token may not see
S32 | 1 | framing, sniffing | headers forbid it
S34 | 1 | tables that grow for ever | pruned
S35 | 1 | deleting in bulk by mistake | a filter and a confirmation
""",
    ),
}
