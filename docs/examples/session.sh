#!/usr/bin/env bash
# What can be done over HTTP, one call after the other. Needs curl and python3:
#   OJS_URL=http://127.0.0.1:8000 OJS_TOKEN=... bash session.sh
# The token needs all four scopes, for the queue "session".
set -euo pipefail

ojs() { # METHOD PATH [BODY]: the answer; an error is shown and ends the script
  local answer
  printf '> %s %s %s\n' "$1" "$2" "${3:-}" >&2
  answer=$(curl --silent --show-error --fail-with-body --max-time 60 --request "$1" "$OJS_URL/ojs/v1$2" \
    --header @<(printf 'Authorization: Bearer %s\n' "$OJS_TOKEN") \
    --header 'Content-Type: application/json' ${3:+--data "$3"}) || { echo "$answer" >&2; return 1; }
  echo "$answer"
}
pick() { # EXPRESSION: a part of the JSON on standard input, for example pick "['job']['id']"
  python3 -c "import json, sys; print(json.loads(sys.stdin.read() or sys.exit(1))$1)"
}

echo "# Enqueue. The job must start within a minute and end within ten seconds of its start."
job=$(ojs POST /jobs '{"type": "mail.send", "queue": "session", "args": ["ada@example.org"],
  "timeout": 10, "grace_period": 5, "enqueue_ttl": 60}' | pick "['job']['id']")
echo "the job is $job"

echo "# List what waits."
ojs GET '/jobs?queue=session&state=available&limit=5' | pick "['pagination']"

echo "# Fetch as a worker, waiting for up to two seconds. The lease is the proof of all that follows."
fetched=$(ojs POST /workers/fetch '{"worker_id": "session", "queues": ["session"], "wait_ms": 2000}')
lease=$(pick "['jobs'][0]['lease']['id']" <<<"$fetched")
echo "started, to be stopped at $(pick "['jobs'][0]['lease']['soft_deadline_at']" <<<"$fetched")"

echo "# Beat: which jobs are still ours, which are to be stopped?"
beat=$(ojs POST /workers/heartbeat "{\"worker_id\": \"session\", \"active_job_ids\": [\"$job\"]}")
for part in jobs_extended soft_timeout_jobs jobs_cancelled jobs_lost; do
  echo "$part: $(pick "['$part']" <<<"$beat")"
done

echo "# Progress and a checkpoint; both count as beats."
ojs PUT "/jobs/$job/progress" "{\"lease_id\": \"$lease\", \"percentage\": 50, \"message\": \"half\"}" | pick "['progress']"
ojs PUT "/jobs/$job/checkpoint" "{\"lease_id\": \"$lease\", \"state\": {\"sent\": 1}}" | pick "['sequence']"

echo "# Acknowledge with a result, twice: the second time changes nothing."
for _ in 1 2; do
  ojs POST /workers/ack "{\"job_id\": \"$job\", \"lease_id\": \"$lease\", \"result\": {\"sent\": 1}}" | pick "['state']"
done
ojs GET "/jobs/$job/result" | pick "['result']"

echo "# Cancel another one before it starts."
other=$(ojs POST /jobs '{"type": "mail.send", "queue": "session", "args": []}' | pick "['job']['id']")
ojs POST "/jobs/$other/cancel" '{"reason": "sent by hand"}' | pick "['state']"

echo "# Pause the queue: nothing is handed out, enqueueing goes on. Then resume it."
ojs POST /queues/session/pause '{"reason": "the mail server is down"}' | pick "['status']"
ojs POST /queues/session/resume | pick "['status']"

echo "# What happened to the job, as far as events are stored."
ojs GET "/events?job_id=$job" | python3 -c '
import json, sys
for event in json.load(sys.stdin)["events"]:
    print(event["time"], event["type"])'

ojs POST /workers/deregister '{"worker_id": "session"}' >/dev/null
echo "# Done."
