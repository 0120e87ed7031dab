CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE items (
	id INTEGER NOT NULL, 
	job_id BIGINT NOT NULL, 
	handler TEXT NOT NULL, 
	state TEXT NOT NULL, 
	order_key BIGINT NOT NULL, 
	due_at BIGINT, 
	leased_by TEXT, 
	lease_expires_at BIGINT, 
	reconcile_after BIGINT, 
	fence BIGINT DEFAULT '0' NOT NULL, 
	attempt_count SMALLINT DEFAULT '0' NOT NULL, 
	round SMALLINT DEFAULT '0' NOT NULL, 
	rescues SMALLINT DEFAULT '0' NOT NULL, 
	repeats SMALLINT DEFAULT '0' NOT NULL, 
	ask_first SMALLINT DEFAULT '0' NOT NULL, 
	progress SMALLINT DEFAULT '0' NOT NULL, 
	created_at BIGINT NOT NULL, 
	queued_at BIGINT NOT NULL, 
	last_attempt_at BIGINT, 
	finished_at BIGINT, 
	timed_out_at BIGINT, 
	deadline_at BIGINT, 
	error_code TEXT, 
	provider_task_id TEXT, 
	account TEXT, cost_micros BIGINT, tokens BIGINT DEFAULT '0' NOT NULL, reserved_micros BIGINT DEFAULT '0' NOT NULL, archive_id BIGINT, kept_until BIGINT, flaw TEXT, calls INTEGER DEFAULT '0' NOT NULL, refused_at BIGINT, output_tokens BIGINT DEFAULT '0' NOT NULL, reused_from BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT ck_items_state CHECK (state IN ('queued', 'submitting', 'processing', 'succeeded', 'failed', 'skipped', 'cancelled'))
);
CREATE INDEX ix_items_ready ON items (handler, order_key) WHERE state = 'queued' AND due_at IS NULL;
CREATE INDEX ix_items_due ON items (due_at) WHERE state = 'queued' AND due_at IS NOT NULL;
CREATE INDEX ix_items_poll ON items (handler, due_at) WHERE state = 'processing';
CREATE INDEX ix_items_lease ON items (lease_expires_at) WHERE state = 'submitting';
CREATE INDEX ix_items_failed ON items (job_id, id) WHERE state = 'failed';
CREATE INDEX ix_items_deadline ON items (deadline_at) WHERE deadline_at IS NOT NULL AND state IN ('queued', 'submitting', 'processing');
CREATE TABLE requests (
	item_id INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (item_id)
);
CREATE TABLE attempts (
	item_id BIGINT NOT NULL, 
	fence BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	outcome TEXT NOT NULL, 
	started_at BIGINT NOT NULL, 
	ended_at BIGINT NOT NULL, 
	error_code TEXT, 
	message TEXT, 
	provider_status INTEGER, 
	result TEXT, 
	input_tokens BIGINT, 
	output_tokens BIGINT, 
	cost_micros BIGINT, 
	PRIMARY KEY (item_id, fence)
);
CREATE TABLE events (
	id INTEGER NOT NULL, 
	subject TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	act TEXT NOT NULL, 
	detail TEXT, 
	PRIMARY KEY (id)
);
CREATE INDEX ix_events_subject ON events (subject, id);
CREATE TABLE providers (
	name TEXT NOT NULL, 
	state TEXT NOT NULL, 
	since_at BIGINT NOT NULL, 
	until_at BIGINT, 
	reason TEXT DEFAULT '' NOT NULL, 
	calls TEXT DEFAULT '[]' NOT NULL, 
	probe_until BIGINT DEFAULT '0' NOT NULL, opened INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (name), 
	CONSTRAINT ck_providers_state CHECK (state IN ('closed', 'open', 'half_open', 'held'))
);
CREATE TABLE workers (
	id TEXT NOT NULL, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	handlers TEXT NOT NULL, 
	started_at BIGINT NOT NULL, 
	seen_at BIGINT NOT NULL, 
	stopped_at BIGINT, place TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE endpoints (
	name TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE paces (
	provider TEXT NOT NULL, 
	requests_per_minute BIGINT, 
	tokens_per_minute BIGINT, 
	concurrency BIGINT NOT NULL, 
	ceiling BIGINT NOT NULL, 
	requests_at BIGINT DEFAULT '0' NOT NULL, 
	tokens_at BIGINT DEFAULT '0' NOT NULL, 
	resume_at BIGINT DEFAULT '0' NOT NULL, requests_period_ms BIGINT DEFAULT '60000' NOT NULL, input_tokens_per_minute BIGINT, output_tokens_per_minute BIGINT, requests_per_day BIGINT, input_at BIGINT DEFAULT '0' NOT NULL, output_at BIGINT DEFAULT '0' NOT NULL, day_calls TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (provider)
);
CREATE TABLE copies (
	item_id BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	custom_id TEXT NOT NULL, 
	PRIMARY KEY (item_id, number)
);
CREATE TABLE api_keys (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	name TEXT DEFAULT '' NOT NULL, 
	role TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	revoked_at BIGINT, 
	used_at BIGINT, left_at BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT ck_api_keys_role CHECK (role IN ('read', 'write', 'admin'))
);
CREATE INDEX ix_api_keys_owner ON api_keys (owner, id);
CREATE TABLE replies (
	owner TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	token TEXT NOT NULL, 
	leased_until BIGINT NOT NULL, 
	status INTEGER, 
	headers TEXT, 
	body TEXT, 
	PRIMARY KEY (owner, "key")
);
CREATE INDEX ix_replies_created ON replies (created_at);
CREATE TABLE files (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	filename TEXT NOT NULL, 
	purpose TEXT NOT NULL, 
	bytes BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT, 
	deleted_at BIGINT, 
	blob TEXT, 
	job_id BIGINT, 
	part TEXT, 
	survey TEXT, 
	PRIMARY KEY (id)
);
CREATE INDEX ix_files_owner ON files (owner, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX ix_files_expiry ON files (expires_at) WHERE expires_at IS NOT NULL AND blob IS NOT NULL;
CREATE TABLE batches (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	job_id BIGINT, 
	status TEXT NOT NULL, 
	endpoint TEXT NOT NULL, 
	input_file_id TEXT NOT NULL, 
	completion_window TEXT NOT NULL, 
	metadata TEXT, 
	model TEXT, 
	errors TEXT, 
	output_file_id TEXT, 
	error_file_id TEXT, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	output_seconds BIGINT, 
	in_progress_at BIGINT, 
	finalizing_at BIGINT, 
	completed_at BIGINT, 
	failed_at BIGINT, 
	expired_at BIGINT, 
	cancelling_at BIGINT, 
	cancelled_at BIGINT, 
	requests BIGINT DEFAULT '0' NOT NULL, 
	leased_until BIGINT DEFAULT '0' NOT NULL, 
	adopted SMALLINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
CREATE INDEX ix_batches_owner ON batches (owner, created_at, id);
CREATE UNIQUE INDEX uq_batches_job ON batches (job_id);
CREATE INDEX ix_batches_moving ON batches (leased_until) WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
CREATE TABLE outbox (
	id INTEGER NOT NULL, 
	owner TEXT NOT NULL, 
	aggregate_type TEXT NOT NULL, 
	aggregate_id TEXT NOT NULL, 
	message_type TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	status TEXT DEFAULT 'pending' NOT NULL, 
	created_at BIGINT NOT NULL, 
	processed_at BIGINT, 
	retry_count BIGINT DEFAULT '0' NOT NULL, 
	error_message TEXT, 
	due_at BIGINT DEFAULT '0' NOT NULL, sink TEXT DEFAULT 'webhooks' NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT ck_outbox_status CHECK (status IN ('pending', 'published', 'dead'))
);
CREATE INDEX ix_outbox_aggregate ON outbox (aggregate_id, aggregate_type);
CREATE TABLE webhooks (
	id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	name TEXT DEFAULT '' NOT NULL, 
	url TEXT NOT NULL, 
	events TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	secret_version BIGINT DEFAULT '1' NOT NULL, 
	old_secret_until BIGINT, 
	failing_since BIGINT, 
	disabled_at BIGINT, 
	deleted_at BIGINT, 
	disabled_why TEXT, 
	PRIMARY KEY (id)
);
CREATE INDEX ix_webhooks_owner ON webhooks (owner, id);
CREATE TRIGGER tell_batch AFTER UPDATE OF status ON batches
WHEN NEW.status IN ('completed', 'failed', 'expired', 'cancelled')
AND OLD.status NOT IN ('completed', 'failed', 'expired', 'cancelled') AND NEW.adopted < 2 BEGIN INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at)
SELECT NEW.owner, 'batch', NEW.id, 'batch.' || NEW.status, '{}', coalesce(NEW.completed_at, NEW.failed_at,
NEW.expired_at, NEW.cancelled_at, NEW.created_at)
WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = NEW.owner AND disabled_at IS NULL AND deleted_at IS NULL); END;
CREATE TABLE sinks (
	name TEXT NOT NULL, 
	opened_at BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
CREATE INDEX ix_outbox_pending ON outbox (sink, due_at, id) WHERE status = 'pending';
CREATE INDEX ix_outbox_done ON outbox (sink, processed_at) WHERE processed_at IS NOT NULL;
CREATE INDEX ix_items_dead ON items (finished_at, id) WHERE state = 'failed' AND archive_id IS NULL;
CREATE INDEX ix_items_letters ON items (job_id, id) WHERE state = 'failed' AND archive_id IS NULL;
CREATE TABLE duties (
	name TEXT NOT NULL, 
	until_at BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE measures (
	owner TEXT NOT NULL, 
	minute BIGINT NOT NULL, 
	handler TEXT NOT NULL, 
	worker TEXT NOT NULL, 
	provider TEXT NOT NULL, 
	succeeded BIGINT DEFAULT '0' NOT NULL, 
	failed BIGINT DEFAULT '0' NOT NULL, 
	retried BIGINT DEFAULT '0' NOT NULL, 
	repeats BIGINT DEFAULT '0' NOT NULL, 
	calls BIGINT DEFAULT '0' NOT NULL, 
	latency_ms BIGINT DEFAULT '0' NOT NULL, 
	cost_micros BIGINT DEFAULT '0' NOT NULL, 
	input_tokens BIGINT DEFAULT '0' NOT NULL, 
	output_tokens BIGINT DEFAULT '0' NOT NULL, 
	within_tenth BIGINT DEFAULT '0' NOT NULL, 
	within_quarter BIGINT DEFAULT '0' NOT NULL, 
	within_half BIGINT DEFAULT '0' NOT NULL, 
	within_one BIGINT DEFAULT '0' NOT NULL, 
	within_two BIGINT DEFAULT '0' NOT NULL, 
	within_five BIGINT DEFAULT '0' NOT NULL, 
	within_ten BIGINT DEFAULT '0' NOT NULL, 
	within_thirty BIGINT DEFAULT '0' NOT NULL, 
	within_sixty BIGINT DEFAULT '0' NOT NULL, 
	longer BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (owner, minute, handler, worker)
);
CREATE INDEX ix_measures_minute ON measures (minute);
CREATE TABLE invocations (
	id TEXT NOT NULL, 
	depth SMALLINT NOT NULL, 
	begun_at BIGINT NOT NULL, 
	ends_by BIGINT NOT NULL, 
	ended_at BIGINT, 
	items BIGINT DEFAULT '0' NOT NULL, 
	was_full SMALLINT DEFAULT '0' NOT NULL, 
	error TEXT, 
	PRIMARY KEY (id)
);
CREATE INDEX ix_invocations_begun ON invocations (begun_at);
CREATE TABLE alarms (
	name TEXT NOT NULL, 
	value BIGINT NOT NULL, 
	bound BIGINT NOT NULL, 
	raised_at BIGINT NOT NULL, 
	cleared_at BIGINT, detail TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE "jobs" (
	id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, 
	owner TEXT NOT NULL, 
	handler TEXT NOT NULL, 
	state TEXT NOT NULL, 
	held SMALLINT DEFAULT '0' NOT NULL, 
	sealed SMALLINT DEFAULT '0' NOT NULL, 
	stop_reason TEXT, 
	priority SMALLINT NOT NULL, 
	retry TEXT, 
	delivery TEXT, 
	label TEXT, 
	ref_seed TEXT NOT NULL, 
	idempotency_key TEXT, 
	digest TEXT DEFAULT '' NOT NULL, 
	total BIGINT DEFAULT '0' NOT NULL, 
	processing BIGINT DEFAULT '0' NOT NULL, 
	succeeded BIGINT DEFAULT '0' NOT NULL, 
	failed BIGINT DEFAULT '0' NOT NULL, 
	skipped BIGINT DEFAULT '0' NOT NULL, 
	cancelled BIGINT DEFAULT '0' NOT NULL, 
	repeats BIGINT DEFAULT '0' NOT NULL, 
	created_at BIGINT NOT NULL, 
	started_at BIGINT, 
	paused_at BIGINT, 
	finished_at BIGINT, 
	timeout_ms BIGINT NOT NULL, 
	timeout_at BIGINT NOT NULL, 
	deadline_at BIGINT, budget_micros BIGINT, spent_micros BIGINT DEFAULT '0' NOT NULL, reserved_micros BIGINT DEFAULT '0' NOT NULL, unknown_micros BIGINT DEFAULT '0' NOT NULL, input_tokens BIGINT DEFAULT '0' NOT NULL, output_tokens BIGINT DEFAULT '0' NOT NULL, short SMALLINT DEFAULT '0' NOT NULL, handler_then TEXT, move_at BIGINT, archived BIGINT DEFAULT '0' NOT NULL, old_tags SMALLINT DEFAULT '0' NOT NULL, truncated BIGINT DEFAULT '0' NOT NULL, refused BIGINT DEFAULT '0' NOT NULL, filtered BIGINT DEFAULT '0' NOT NULL, level_key BIGINT DEFAULT '0' NOT NULL, first_key BIGINT DEFAULT '0' NOT NULL, last_key BIGINT DEFAULT '0' NOT NULL, stopped_at BIGINT, short_of BIGINT, short_renewals BIGINT DEFAULT '0' NOT NULL, fallback TEXT, waits_for TEXT, known BIGINT DEFAULT '0' NOT NULL, unfinished BIGINT DEFAULT '0' NOT NULL, reused BIGINT DEFAULT '0' NOT NULL, counted_id BIGINT DEFAULT '0' NOT NULL, counted_at BIGINT DEFAULT '0' NOT NULL, 
	CONSTRAINT ck_jobs_state CHECK (state IN ('queued', 'running', 'paused', 'completed', 'failed', 'cancelled'))
);
CREATE UNIQUE INDEX uq_jobs_key ON jobs (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ix_jobs_held ON jobs (id) WHERE held = 1;
CREATE INDEX ix_jobs_timeout ON jobs (timeout_at) WHERE state IN ('queued', 'running');
CREATE INDEX ix_jobs_open ON jobs (id) WHERE state IN ('queued', 'running', 'paused');
CREATE INDEX ix_jobs_owner ON jobs (owner, id);
CREATE INDEX ix_jobs_move ON jobs (move_at) WHERE move_at IS NOT NULL AND state IN ('queued', 'running', 'paused');
CREATE INDEX ix_jobs_short ON jobs (id) WHERE short = 1;
CREATE TRIGGER tell_ended AFTER UPDATE OF state ON jobs
WHEN NEW.state IN ('completed', 'failed', 'cancelled') AND OLD.state NOT IN ('completed', 'failed', 'cancelled')
BEGIN INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at)
SELECT NEW.owner, 'job', CAST(NEW.id AS text), 'job.' || NEW.state, '{}', coalesce(NEW.finished_at, NEW.created_at)
WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = NEW.owner AND disabled_at IS NULL AND deleted_at IS NULL); END;
CREATE INDEX ix_jobs_failing ON jobs (owner, id) WHERE failed > archived;
CREATE INDEX ix_jobs_ended ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX ix_jobs_open_of ON jobs (owner, id) WHERE state IN ('queued', 'running', 'paused');
CREATE TABLE "inbox" (
	id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, 
	owner TEXT NOT NULL, 
	item_id BIGINT NOT NULL, 
	fence BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	received_at BIGINT NOT NULL, 
	body TEXT NOT NULL, 
	is_late SMALLINT DEFAULT '0' NOT NULL, 
	digest TEXT NOT NULL, 
	accepted_at BIGINT, 
	accepted_by TEXT
);
CREATE UNIQUE INDEX uq_inbox_digest ON inbox (item_id, digest);
CREATE INDEX ix_inbox_item ON inbox (item_id, id);
CREATE INDEX ix_inbox_late ON inbox (owner, id) WHERE is_late = 1 AND kind = 'succeeded';
CREATE TABLE "archives" (
	id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, 
	owner TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	items BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	digest TEXT DEFAULT '' NOT NULL, 
	first_at BIGINT NOT NULL, 
	last_at BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	restored_at BIGINT
);
CREATE INDEX ix_archives_owner ON archives (owner, id);
CREATE UNIQUE INDEX uq_archives_blob ON archives (blob);
CREATE TABLE "replays" (
	id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, 
	owner TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	filter TEXT NOT NULL, 
	items BIGINT NOT NULL, 
	rate DOUBLE, 
	until_at BIGINT, expected BIGINT
);
CREATE INDEX ix_replays_owner ON replays (owner, id);
CREATE TABLE "deliveries" (
	id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, 
	webhook_id TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	event_id TEXT NOT NULL, 
	event_type TEXT NOT NULL, 
	body TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	due_at BIGINT, 
	tries BIGINT DEFAULT '0' NOT NULL, 
	delivered_at BIGINT, 
	given_up_at BIGINT, 
	last_status INTEGER, 
	last_error TEXT
);
CREATE UNIQUE INDEX uq_deliveries_event ON deliveries (webhook_id, event_id);
CREATE INDEX ix_deliveries_webhook ON deliveries (webhook_id, id);
CREATE INDEX ix_deliveries_over ON deliveries (created_at) WHERE due_at IS NULL;
CREATE INDEX ix_deliveries_due ON deliveries (webhook_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ix_items_unknown ON items (finished_at, id) WHERE state = 'failed' AND flaw = 'unknown' AND archive_id IS NULL;
CREATE INDEX ix_items_late ON items (handler, due_at) WHERE state = 'failed' AND due_at IS NOT NULL;
CREATE TABLE turns (
	handler TEXT NOT NULL, 
	level_key BIGINT NOT NULL, 
	served_key BIGINT NOT NULL, 
	PRIMARY KEY (handler, level_key)
);
CREATE TABLE budgets (
	id INTEGER NOT NULL, 
	owner TEXT NOT NULL, 
	handler TEXT NOT NULL, 
	period TEXT NOT NULL, 
	limit_micros BIGINT NOT NULL, 
	used_micros BIGINT DEFAULT '0' NOT NULL, 
	reserved_micros BIGINT DEFAULT '0' NOT NULL, 
	since_at BIGINT DEFAULT '0' NOT NULL, 
	ends_at BIGINT, 
	renewals BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (owner, handler, period)
);
CREATE TABLE schedules (
	owner TEXT NOT NULL, 
	name TEXT NOT NULL, 
	handler TEXT NOT NULL, 
	cron TEXT NOT NULL, 
	timezone TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	missed TEXT NOT NULL, 
	declared_at BIGINT, 
	paused_at BIGINT, 
	next_at BIGINT, 
	due_at BIGINT, 
	last_at BIGINT, 
	last_job BIGINT, 
	error_at BIGINT, 
	error TEXT, 
	created_at BIGINT NOT NULL, 
	version BIGINT DEFAULT '1' NOT NULL, 
	PRIMARY KEY (owner, name)
);
CREATE INDEX ix_schedules_due ON schedules (handler, due_at) WHERE due_at IS NOT NULL;
CREATE TABLE job_links (
	job_id BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	after_id BIGINT NOT NULL, 
	takes TEXT NOT NULL, 
	feeds INTEGER NOT NULL, 
	ended INTEGER DEFAULT '0' NOT NULL, 
	cursor BIGINT, 
	PRIMARY KEY (job_id, number)
);
CREATE INDEX ix_job_links_after ON job_links (after_id);
CREATE INDEX ix_job_links_ended ON job_links (job_id) WHERE ended = 1;
CREATE TABLE item_keys (
	owner TEXT NOT NULL, 
	handler TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	item_id BIGINT NOT NULL, 
	PRIMARY KEY (owner, handler, "key")
);
CREATE INDEX ix_item_keys_item ON item_keys (item_id);
CREATE TRIGGER tell_links AFTER UPDATE OF state ON jobs WHEN NEW.state IN ('completed', 'failed', 'cancelled') AND OLD.state NOT IN ('completed', 'failed', 'cancelled') BEGIN UPDATE job_links SET ended = 1 WHERE after_id = NEW.id; DELETE FROM job_links WHERE job_id = NEW.id; END;
CREATE TABLE job_archives (
	job_id BIGINT NOT NULL, 
	owner TEXT NOT NULL, 
	blob TEXT NOT NULL, 
	items BIGINT NOT NULL, 
	bytes BIGINT NOT NULL, 
	digest TEXT NOT NULL, 
	finished_at BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (job_id)
);
CREATE UNIQUE INDEX uq_job_archives_blob ON job_archives (blob);
CREATE INDEX ix_jobs_ended_of ON jobs (owner, finished_at, id) WHERE finished_at IS NOT NULL;
CREATE TABLE failure_notices (
	id INTEGER NOT NULL, 
	item_id BIGINT NOT NULL, 
	fence BIGINT NOT NULL, 
	job_id BIGINT NOT NULL, 
	handler TEXT NOT NULL, 
	attempt_count BIGINT NOT NULL, 
	calls BIGINT NOT NULL, 
	error_code TEXT, 
	flaw TEXT, 
	failed_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TRIGGER tell_failed AFTER UPDATE OF state ON items WHEN NEW.state = 'failed' AND OLD.state <> 'failed' BEGIN INSERT INTO failure_notices
(item_id, fence, job_id, handler, attempt_count, calls, error_code, flaw, failed_at)
SELECT NEW.id, NEW.fence, NEW.job_id, NEW.handler, NEW.attempt_count, NEW.calls, NEW.error_code, NEW.flaw,
coalesce(NEW.finished_at, 0)
WHERE EXISTS (SELECT 1 FROM sinks WHERE name = 'messages')
OR EXISTS (SELECT 1 FROM jobs JOIN webhooks ON webhooks.owner = jobs.owner WHERE jobs.id = NEW.job_id
AND webhooks.disabled_at IS NULL AND webhooks.deleted_at IS NULL AND webhooks.events LIKE '%"item.failed"%'); END;
CREATE TABLE answer_keys (
	item_id INTEGER NOT NULL, 
	key_high BIGINT NOT NULL, 
	key_low BIGINT NOT NULL, 
	model TEXT NOT NULL, 
	answered_at BIGINT, 
	PRIMARY KEY (item_id)
);
CREATE INDEX ix_answer_keys_key ON answer_keys (key_high, item_id);
CREATE TABLE job_counts (
	job_id BIGINT NOT NULL, 
	id BIGINT NOT NULL, 
	processing BIGINT DEFAULT '0' NOT NULL, 
	succeeded BIGINT DEFAULT '0' NOT NULL, 
	failed BIGINT DEFAULT '0' NOT NULL, 
	skipped BIGINT DEFAULT '0' NOT NULL, 
	cancelled BIGINT DEFAULT '0' NOT NULL, 
	repeats BIGINT DEFAULT '0' NOT NULL, 
	input_tokens BIGINT DEFAULT '0' NOT NULL, 
	output_tokens BIGINT DEFAULT '0' NOT NULL, 
	truncated BIGINT DEFAULT '0' NOT NULL, 
	refused BIGINT DEFAULT '0' NOT NULL, 
	filtered BIGINT DEFAULT '0' NOT NULL, 
	unfinished BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (job_id, id)
);
INSERT INTO alembic_version VALUES ('0022');
