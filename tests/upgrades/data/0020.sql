-- A database of revision 0020 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061414881
-- digest of the revision: 904e76fe25a9fedd931e6efe58db04aa97578157369ae13c661d29ada48592fa
-- paid: da9a6446ad96fbef6a625e663ce8e288c70dbecb
-- paid: d140dbf71760fb9abb2ed208109b32355d55fb13
-- paid: 241057da422d34a5636f2e41cb9f52e630a878ab
-- paid: 3a9cbd6e3e330560846181dc68340237224a7b4b
-- paid: 09bdd9afc8812c55b8e75c7818c43880f62e838f
-- paid: 009625b706da03077cddfbecaf03f08fd041506e
-- paid: 2da994dbbe3ee1899a6f083cd75a3c10f1b8bb66
-- paid: 43d4911842ffbe57689736800a4c74ccb1430617
-- paid: f0510c6b0ee7a8b7ade7f35d0d349c776f6b35d5
-- paid: 1e2a55b78265c0dc186d4d34f6ac5a74e66bb493
-- paid: 24b2a5494f06f9e5deba9a7c10ace8263fb5dff3
-- paid: a9348c96246edd7fdd685530c15aa23e40380304
-- paid: 05673312bc3ef52e37c593b07ec0a989f7a978f0
INSERT INTO answer_keys ("item_id", "key_high", "key_low", "model") VALUES
(536870912, 4698659976447729539, 3619420744693211844, 'gpt-4o-mini'),
(536870913, 7681269890579068712, -6726064790966292962, 'gpt-4o-mini'),
(536870914, -266482864580700161, -9028387638769816377, 'gpt-4o-mini'),
(536870915, 5735281004238513009, -6447694463618785393, 'gpt-4o-mini'),
(536870916, -4000797175948533784, 6023206795890577888, 'gpt-4o-mini');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061411117, 1795061411344, 200, '{"status_code":200,"request_id":"req_db582700000003","body":{"id":"chatcmpl-db582700000002","object":"chat.completion","created":1795061411,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061412281, 1795061412489, 200, '{"status_code":200,"request_id":"req_db582700000007","body":{"id":"chatcmpl-db582700000005","object":"chat.completion","created":1795061412,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061414837, 1795061414843, '{"key":"da9a6446ad96fbef6a625e663ce8e288c70dbecb"}'),
(1610612736, 1, 1, 'succeeded', 1795061414894, 1795061414895, '{"key":"d140dbf71760fb9abb2ed208109b32355d55fb13"}'),
(1610612737, 1, 1, 'succeeded', 1795061414894, 1795061414895, '{"key":"241057da422d34a5636f2e41cb9f52e630a878ab"}'),
(1879048192, 1, 1, 'succeeded', 1795061414894, 1795061414895, '{"key":"09bdd9afc8812c55b8e75c7818c43880f62e838f"}'),
(2147483648, 1, 1, 'succeeded', 1795061414894, 1795061414895, '{"key":"2da994dbbe3ee1899a6f083cd75a3c10f1b8bb66"}'),
(2952790016, 1, 1, 'succeeded', 1795061414894, 1795061414895, '{"key":"a9348c96246edd7fdd685530c15aa23e40380304"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061414894, 1795061414895, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061414894, 1795061414895, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061414894, 1795061414895, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_d94d6beb7703028b959562e4', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-4f7a075de3082d5e6d642348', '24h', 'gpt-4o-mini', 1795061411085, 1795147811085, 1795061411094, 5, 1795061411121);
INSERT INTO budgets ("id", "owner", "handler", "period", "limit_micros", "reserved_micros") VALUES
(1, '', '', 'total', 50000000, 62);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061461013);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061411019);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061412269, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061412269, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061414850, 'paused'),
(4, 'job:5', 1795061414857, 'cancel_asked');
INSERT INTO failure_notices ("id", "item_id", "fence", "job_id", "handler", "attempt_count", "calls", "error_code", "failed_at") VALUES
(1, 1610612738, 1, 6, 'call', 1, 1, 'UNKNOWN', 1795061414896);
INSERT INTO failure_notices ("id", "item_id", "fence", "job_id", "handler", "attempt_count", "calls", "error_code", "flaw", "failed_at") VALUES
(2, 2147483649, 1, 8, 'once', 1, 1, 'UNKNOWN', 'unknown', 1795061414896);
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-4f7a075de3082d5e6d642348', 'local', 'requests.jsonl', 'batch', 920, 1795061411073, 1797653411073, 'files/395b7f3882e684d54e95f4e6', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO item_keys ("owner", "handler", "key", "item_id") VALUES
('local', 'call', 'answer', 2952790016);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls", "output_tokens") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795061411117, 2, 1, 1, 1795061411103, 1795061411103, 1795061411117, 1795147811087, 31, 16, 1, 9),
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061411340, 2, 1, 1, 1795061411103, 1795061411103, 1795061411340, 1795147811087, 31, 16, 1, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls", "output_tokens") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795061411117, 1, 1, 100, 1795061411103, 1795061411103, 1795061411117, 1795061411337, 1795147811087, 31, 16, 1, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens", "output_tokens") VALUES
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061411103, 1795061411103, 1795147811087, 31, 16, 9),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061411103, 1795061411103, 1795147811087, 31, 16, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls", "output_tokens") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795061412281, 1, 1, 100, 1795061412233, 1795061412233, 1795061412281, 1795061412490, 31, 16, 1, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros", "output_tokens") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, '62df8d374c384fbb:2', 1795061414834, 1795061412281, 1, 1795061412233, 1795061412233, 1795061412281, 31, 16, 31, 9),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334466, '62df8d374c384fbb:4', 1795061414834, 1795061412497, 1, 1795061412233, 1795061412233, 1795061412497, 31, 16, 31, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens", "output_tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061412233, 1795061412233, 31, 16, 9),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061412233, 1795061412233, 31, 16, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795061414837, 1, 1, 100, 1795061414777, 1795061414777, 1795061414837, 1795061414842, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795061414894, 1, 1, 100, 1795061414865, 1795061414865, 1795061414894, 1795061414896, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795061414894, 1, 1, 100, 1795061414865, 1795061414865, 1795061414894, 1795061414896, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795061714894, 1, 1, 100, 1795061414865, 1795061414865, 1795061414894, 1795061414896, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795061414894, 1, 1, 100, 1795061414869, 1795061414869, 1795061414894, 1795061414896, 1),
(2952790016, 11, 'call', 'succeeded', 40532396646334464, 1795061414894, 1, 1, 100, 1795061414874, 1795061414874, 1795061414894, 1795061414896, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795061414849, 1795061414849),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795061414849, 1795061414849);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795061414853, 1795061414853, 1795061414861);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795061414894, 1, 1, 1795061414865, 1795061414865, 1795061414894, 1795061414896, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795061420765, 1795061414894, 1, 1, 1795061414865, 1795061414865, 1795061414894, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, '98eeda07bbee49e1:1', 1795061504894, 1795061414894, 1, 1795061414865, 1795061414865, 1795061414894),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, '98eeda07bbee49e1:1', 1795061504894, 1795061714894, 1, 1795061414865, 1795061414865, 1795061414894),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, '98eeda07bbee49e1:3', 1795061504898, 1795061714898, 1, 1795061414865, 1795061414865, 1795061414898),
(2147483650, 8, 'once', 'submitting', 27021597764222978, '98eeda07bbee49e1:1', 1795061504894, 1795061414894, 1, 1795061414869, 1795061414869, 1795061414894);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795061414865, 1795061414865);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795061414894, 1, 1, 1795061414869, 1795061414869, 1795061414894, 1795061414896, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795061419896, 1795061414894, 1, 1795061414869, 1795061414869, 1795061414894, 'task of 1e2a55b78265c0dc186d4d34f6ac5a74e66bb493', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795061419896, 1795061414894, 1, 1795061414869, 1795061414869, 1795061414894, 'task of 24b2a5494f06f9e5deba9a7c10ace8263fb5dff3', 1);
INSERT INTO job_links ("job_id", "number", "after_id", "takes", "feeds") VALUES
(10, 0, 9, 'succeeded', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_d94d6beb7703028b959562e4', '443ac766e9834d18', 'batch:batch_d94d6beb7703028b959562e4', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 2, 1795061411103, 1795061411117, 1209600000, 1796271011103, 1795147811087, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', 'ea37e7981cf34138', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061412233, 1795061412281, 1209600000, 1796271012233, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '2633fa59fd2b42d2', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061414777, 1795061414837, 1795061414842, 172800000, 1795234214777, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, 'edb2f889fc9f46d4', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061414849, 1795061414850, 172800000, 1795234214849, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '059a8c1f508e465b', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061414853, 1795061414861, 172800000, 1795234214853, 40532396646334464, 40532396646334464, 40532396646334465, 1795061414857);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, '2eef50bb26634045', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061414865, 1795061414894, 172800000, 1795234214865, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, 'd505afbe368e49c5', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061414869, 1795061414894, 172800000, 1795234214869, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '93ef0b6350ed492c', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061414865, 1795061414894, 172800000, 1795234214865, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, '9d203ca68b0345d8', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061414869, 1795061414894, 172800000, 1795234214869, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO jobs ("id", "owner", "handler", "state", "priority", "ref_seed", "idempotency_key", "digest", "created_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "fallback", "waits_for") VALUES
(10, 'local', 'call', 'queued', 0, 'f62f0ef3007848ea', 'unique:9dd8f72ab48f6c6bee21f0b4d2af6c8279a3dfe7', '92907e54d018449ea5d07bfbdde11645bb89d2b55ca46548737d3b658e25a68b', 1795061414873, 172800000, 1795234214873, 40532396646334464, 40532396646334464, 40532396646334464, 'look_up', '["9"]');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(11, 'local', 'call', 'completed', 1, 0, 'b00828e7940f48dd', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061414874, 1795061414894, 1795061414896, 172800000, 1795234214874, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917690, 'call', '4a0a547b62274f94', 'call', 1, 1, 6, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061414842),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061414861),
(3, 'local', 'job', '11', 'job.completed', '{}', 1795061414896);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061414894,1795061414895,0],[1795061414894,1795061414895,1],[1795061414894,1795061414895,1],[1795061414894,1795061414895,1]]'),
('once', 'closed', 0, '[[1795061414894,1795061414895,0],[1795061414894,1795061414895,1]]');
INSERT INTO requests ("item_id", "body") VALUES
(268435456, '{"custom_id":"r0","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 0"}], "max_tokens": 9}}'),
(268435457, '{"custom_id":"r1","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 1"}], "max_tokens": 9}}'),
(268435458, '{"custom_id":"r2","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 2"}], "max_tokens": 9}}'),
(268435459, '{"custom_id":"r3","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 3"}], "max_tokens": 9}}'),
(268435460, '{"custom_id":"r4","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 4"}], "max_tokens": 9}}'),
(536870912, '{"custom_id":"r0","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 0"}], "max_tokens": 9}}'),
(536870913, '{"custom_id":"r1","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 1"}], "max_tokens": 9}}'),
(536870914, '{"custom_id":"r2","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 2"}], "max_tokens": 9}}'),
(536870915, '{"custom_id":"r3","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 3"}], "max_tokens": 9}}'),
(536870916, '{"custom_id":"r4","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 4"}], "max_tokens": 9}}'),
(805306368, '{"do":"answer"}'),
(1073741824, '{"do":"answer"}'),
(1073741825, '{"do":"answer"}'),
(1342177280, '{"do":"answer"}'),
(1610612736, '{"do":"answer"}'),
(1610612737, '{"do":"answer"}'),
(1610612738, '{"do":"refuse"}'),
(1610612739, '{"do":"retry"}'),
(1610612740, '{"do":"hang"}'),
(1879048192, '{"do":"answer"}'),
(1879048193, '{"do":"hang"}'),
(1879048194, '{"do":"hang"}'),
(1879048195, '{"do":"answer"}'),
(2147483648, '{"do":"answer"}'),
(2147483649, '{"do":"lose"}'),
(2147483650, '{"do":"hang"}'),
(2415919104, '{"do":"answer"}'),
(2415919105, '{"do":"answer"}'),
(2952790016, '{"do":"answer"}');
INSERT INTO schedules ("owner", "name", "handler", "cron", "timezone", "payload", "missed", "next_at", "due_at", "created_at") VALUES
('local', 'yearly', 'call', '0 0 1 1 *', 'UTC', '{"do":"answer"}', 'once', 1798761600000, 1798761600000, 1795061414049);
INSERT INTO turns ("handler", "level_key", "served_key") VALUES
('call', 40532396646334464, 40532396646334464);
INSERT INTO webhooks ("id", "owner", "url", "events", "created_at", "updated_at") VALUES
('wh_152f3d1d4fd393eb6908e1ba', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed", "item.failed"]', 1795061411052, 1795061411052);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('96c83cb49a4b4817', 'vm', 25496, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061411026, 1795061412253, 1795061412253, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('62df8d374c384fbb', 'vm', 25578, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061412246, 1795061414834, 1795061414834, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('4a0a547b62274f94', 'vm', 25598, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061414826, 1795061414846, 1795061414846, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('98eeda07bbee49e1', 'vm', 25598, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061414881, 1795061414881, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
