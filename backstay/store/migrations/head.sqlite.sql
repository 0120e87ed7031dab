CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE jobs (
	id INTEGER NOT NULL, 
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
	deadline_at BIGINT, budget_micros BIGINT, spent_micros BIGINT DEFAULT '0' NOT NULL, reserved_micros BIGINT DEFAULT '0' NOT NULL, unknown_micros BIGINT DEFAULT '0' NOT NULL, input_tokens BIGINT DEFAULT '0' NOT NULL, output_tokens BIGINT DEFAULT '0' NOT NULL, short SMALLINT DEFAULT '0' NOT NULL, handler_then TEXT, move_at BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT ck_jobs_state CHECK (state IN ('queued', 'running', 'paused', 'completed', 'failed', 'cancelled'))
);
CREATE UNIQUE INDEX uq_jobs_key ON jobs (owner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ix_jobs_held ON jobs (id) WHERE held = 1;
CREATE INDEX ix_jobs_timeout ON jobs (timeout_at) WHERE state IN ('queued', 'running');
CREATE INDEX ix_jobs_open ON jobs (id) WHERE state IN ('queued', 'running', 'paused');
CREATE INDEX ix_jobs_owner ON jobs (owner, id);
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
	account TEXT, cost_micros BIGINT, tokens BIGINT DEFAULT '0' NOT NULL, reserved_micros BIGINT DEFAULT '0' NOT NULL, 
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
	probe_until BIGINT DEFAULT '0' NOT NULL, 
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
CREATE INDEX ix_jobs_move ON jobs (move_at) WHERE move_at IS NOT NULL AND state IN ('queued', 'running', 'paused');
CREATE INDEX ix_jobs_short ON jobs (id) WHERE short = 1;
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
	resume_at BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (provider)
);
CREATE TABLE copies (
	item_id BIGINT NOT NULL, 
	number BIGINT NOT NULL, 
	custom_id TEXT NOT NULL, 
	PRIMARY KEY (item_id, number)
);
INSERT INTO alembic_version VALUES ('0002');
