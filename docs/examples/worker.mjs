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
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => (stopping = true)); // a second one kills

async function call(path, body = {}) {
  const headers = { authorization: `Bearer ${OJS_TOKEN}`, "content-type": "application/json" };
  const request = { method: "POST", headers, body: JSON.stringify({ worker_id, ...body }) };
  const answer = await fetch(`${OJS_URL}/ojs/v1/workers/${path}`, { ...request, signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) throw Object.assign(new Error(`${path}: ${await answer.text()}`), { status: answer.status });
  return answer.json();
}

async function handle(job, signal) { // async, so that whatever goes wrong in here is a failure of the job
  if (!Object.hasOwn(handlers, job.type)) throw { name: "handler_not_found", message: job.type };
  return JSON.parse(JSON.stringify((await handlers[job.type](job.args, signal)) ?? null)); // no JSON: a failure too
}

async function run(job) {
  running.get(job.id)?.abort("lost"); // an earlier attempt, if it still runs here
  const controller = new AbortController(), { signal } = controller;
  running.set(job.id, controller);
  const type = (error) => (signal.aborted ? signal.reason : String(error?.name ?? "Error"));
  const [path, outcome] = await handle(job, signal).then(
    (result) => ["ack", { result }],
    (error) => ["nack", { error: { type: type(error), message: String(error?.message ?? error) } }],
  );
  const report = { job_id: job.id, lease_id: job.lease.id, ...outcome };
  const over = () => ["cancelled", "stalled", "lost", "total_timeout"].includes(signal.reason);
  while (!over()) { // until it is answered: work must not be lost
    const status = await call(path, report).then(() => 200, (error) => (console.error(error), error.status));
    if (status < 500 && status !== 429) break; // another error, such as 409, is final
    await sleep(1000);
  }
  if (running.get(job.id) === controller) running.delete(job.id);
}

async function beat() {
  const named = new Map(running); // the answer is about these, not about what starts meanwhile
  const answer = await call("heartbeat", { active_job_ids: [...named.keys()] });
  // After a "timeout" the grace period runs: end, and report. After the others nothing counts any more.
  for (const [id, reason] of Object.entries(answer.stop_reasons)) named.get(id)?.abort(reason);
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
