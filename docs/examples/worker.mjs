// A worker in JavaScript on nothing but fetch: OJS_URL=... OJS_TOKEN=... OJS_QUEUES=a,b node worker.mjs
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const handlers = {
  "node.echo": async (args) => args,
  "node.slow": async ([steps = 600], signal) => {
    for (let step = 0; step < steps; step++) await sleep(100, null, { signal });
    return steps;
  },
};
const { OJS_URL, OJS_TOKEN, OJS_QUEUES = "default", OJS_SLOTS = "4" } = process.env;
const worker_id = `${hostname()}-${process.pid}`;
const running = new Map(); // job id => the AbortController of its handler
let stopping = false;
process.on("SIGTERM", () => (stopping = true));

async function call(path, body = {}) {
  const headers = { authorization: `Bearer ${OJS_TOKEN}`, "content-type": "application/json" };
  const request = { method: "POST", headers, body: JSON.stringify({ worker_id, ...body }) };
  const answer = await fetch(`${OJS_URL}/ojs/v1/workers/${path}`, request);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

async function run(job) {
  const { signal } = running.set(job.id, new AbortController()).get(job.id);
  const report = (path, outcome) => call(path, { job_id: job.id, lease_id: job.lease.id, ...outcome });
  const handler = handlers[job.type] ?? (async () => { throw { name: "handler_not_found", message: job.type }; });
  const outcome = await handler(job.args, signal).then(
    (result) => ["ack", { result }],
    (error) => ["nack", { error: { type: signal.aborted ? signal.reason : error.name, message: `${error.message}` } }],
  );
  const over = signal.reason === "cancelled" || signal.reason === "lost"; // there is nothing to report
  if (!over) await report(...outcome).catch(console.error); // 409: the attempt is not ours any more
  running.delete(job.id);
}

async function beat() {
  const named = new Map(running); // the answer is about these, not about what starts meanwhile
  const answer = await call("heartbeat", { active_job_ids: [...named.keys()] });
  const stop = (ids, reason) => ids.forEach((id) => named.get(id)?.abort(reason));
  stop(answer.soft_timeout_jobs, "timeout"); // past its timeout, inside the grace period: end, and report
  stop(answer.jobs_cancelled, "cancelled");
  stop(answer.jobs_lost, "lost");
  if (answer.state === "terminate") stopping = true;
}

const beating = setInterval(() => beat().catch(console.error), 1000);
while (!stopping) {
  const count = Number(OJS_SLOTS) - running.size;
  const asked = { queues: OJS_QUEUES.split(","), count, wait_ms: 2000 };
  const retry = (error) => (console.error(error), sleep(1000));
  if (count > 0) await call("fetch", asked).then(({ jobs }) => jobs.forEach(run), retry);
  else await sleep(100);
}
for (const controller of running.values()) controller.abort("shutdown");
while (running.size) await sleep(50);
clearInterval(beating);
await call("deregister").catch(console.error);
