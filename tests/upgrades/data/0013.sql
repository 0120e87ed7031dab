-- A database of revision 0013 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061379725
-- digest of the revision: dbca24cc3effe19d366c88de927d0b7cbbf56c1e1c29f80b1850020f23ef44f4
-- paid: 48d9ebbfc7a44a100dd19cf03c2d48425cfee3e0
-- paid: d5d95ba0a211de54f7ed1a1bcd5174161afd5ceb
-- paid: a6f8b759176aa282121c21b159c20c1866e1a408
-- paid: 2e0840a22eb87950d527e8e0dbc27b23a31a5088
-- paid: 8cf7b3a40295cc96e2e96172ded2d86f6da0a4a9
-- paid: 97bb15fa9f2db036b23ef4679ed3467133917367
-- paid: bf466523d0e10ae489471b6600e0dd86f811490b
-- paid: ef6f3c6584425915844ef595a73742a0c1947cd9
-- paid: 9cf2fe7890839b63de2d9dc4d406cb2d38af9a59
-- paid: 545f824465e55b6971705de07ec745e35e10fa15
-- paid: 7fad3dbaf41731a2d06fbdf0a9be8162382eaf14
-- paid: ef802a4b83406863421518e0164187d25d7190f2
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061376860, 1795061377070, 200, '{"status_code":200,"request_id":"req_90ca5a00000003","body":{"id":"chatcmpl-90ca5a00000002","object":"chat.completion","created":1795061376,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061378083, 1795061378292, 200, '{"status_code":200,"request_id":"req_90ca5a00000009","body":{"id":"chatcmpl-90ca5a00000007","object":"chat.completion","created":1795061378,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061379697, 1795061379699, '{"key":"48d9ebbfc7a44a100dd19cf03c2d48425cfee3e0"}'),
(1610612736, 1, 1, 'succeeded', 1795061379740, 1795061379747, '{"key":"d5d95ba0a211de54f7ed1a1bcd5174161afd5ceb"}'),
(1610612737, 1, 1, 'succeeded', 1795061379740, 1795061379747, '{"key":"a6f8b759176aa282121c21b159c20c1866e1a408"}'),
(1879048192, 1, 1, 'succeeded', 1795061379740, 1795061379747, '{"key":"8cf7b3a40295cc96e2e96172ded2d86f6da0a4a9"}'),
(2147483648, 1, 1, 'succeeded', 1795061379740, 1795061379747, '{"key":"bf466523d0e10ae489471b6600e0dd86f811490b"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061379740, 1795061379747, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061379740, 1795061379747, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061379740, 1795061379747, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_3229c6fd9bd9302775888ea4', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-4fd7bc16e72c4e6582695f34', '24h', 'gpt-4o-mini', 1795061376851, 1795147776851, 1795061376857, 5, 1795061376862);
INSERT INTO budgets ("id", "owner", "handler", "period", "limit_micros", "reserved_micros") VALUES
(1, '', '', 'total', 50000000, 31);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061426815);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061376820);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061378079, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061378079, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061379714, 'paused'),
(4, 'job:5', 1795061379717, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-4fd7bc16e72c4e6582695f34', 'local', 'requests.jsonl', 'batch', 920, 1795061376847, 1797653376847, 'files/87653a1b017760fe1120ca50', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795061376860, 2, 1, 1, 1795061376859, 1795061376859, 1795061376860, 1795147776852, 31, 16, 1),
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061377078, 2, 1, 1, 1795061376859, 1795061376859, 1795061377078, 1795147776852, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795061376860, 1, 1, 100, 1795061376859, 1795061376859, 1795061376860, 1795061377071, 1795147776852, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061376859, 1795061376859, 1795147776852, 31, 16),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061376859, 1795061376859, 1795147776852, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795061378083, 1, 1, 100, 1795061378073, 1795061378073, 1795061378083, 1795061378292, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, 'd90bf2c4c51b4a9b:2', 1795061379697, 1795061378083, 1, 1795061378073, 1795061378073, 1795061378083, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870914, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061378073, 1795061378073, 31, 16),
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061378073, 1795061378073, 31, 16),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061378073, 1795061378073, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795061379697, 1, 1, 100, 1795061379670, 1795061379670, 1795061379697, 1795061379701, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795061379740, 1, 1, 100, 1795061379721, 1795061379721, 1795061379740, 1795061379746, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795061379740, 1, 1, 100, 1795061379721, 1795061379721, 1795061379740, 1795061379746, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795061679740, 1, 1, 100, 1795061379722, 1795061379722, 1795061379740, 1795061379746, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795061379740, 1, 1, 100, 1795061379723, 1795061379723, 1795061379740, 1795061379746, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795061379713, 1795061379713),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795061379713, 1795061379713);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795061379717, 1795061379717, 1795061379719);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795061379740, 1, 1, 1795061379721, 1795061379721, 1795061379740, 1795061379746, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795061387372, 1795061379740, 1, 1, 1795061379721, 1795061379721, 1795061379740, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, '2ba3bfe4b48d455f:1', 1795061469740, 1795061379740, 1, 1795061379721, 1795061379721, 1795061379740),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, '2ba3bfe4b48d455f:1', 1795061469740, 1795061679740, 1, 1795061379722, 1795061379722, 1795061379740),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, '2ba3bfe4b48d455f:3', 1795061469749, 1795061679749, 1, 1795061379722, 1795061379722, 1795061379749),
(2147483650, 8, 'once', 'submitting', 27021597764222978, '2ba3bfe4b48d455f:1', 1795061469740, 1795061379740, 1, 1795061379723, 1795061379723, 1795061379740);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795061379722, 1795061379722);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795061379740, 1, 1, 1795061379723, 1795061379723, 1795061379740, 1795061379746, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795061384746, 1795061379740, 1, 1795061379724, 1795061379724, 1795061379740, 'task of 545f824465e55b6971705de07ec745e35e10fa15', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795061384746, 1795061379740, 1, 1795061379724, 1795061379724, 1795061379740, 'task of 7fad3dbaf41731a2d06fbdf0a9be8162382eaf14', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_3229c6fd9bd9302775888ea4', '9f54525c54ec4e83', 'batch:batch_3229c6fd9bd9302775888ea4', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 2, 1795061376859, 1795061376860, 1209600000, 1796270976859, 1795147776852, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', '465289d25bd84064', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061378073, 1795061378083, 1209600000, 1796270978073, 1000000, 6, 31, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '61a16964cdd4485a', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061379670, 1795061379697, 1795061379701, 172800000, 1795234179670, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '6a81eb22c9b84f73', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061379713, 1795061379714, 172800000, 1795234179713, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '525eabc5f91e4617', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061379717, 1795061379719, 172800000, 1795234179717, 40532396646334464, 40532396646334464, 40532396646334465, 1795061379717);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, 'ec627e5975d94475', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061379721, 1795061379740, 172800000, 1795234179721, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, 'b6f206e663124520', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061379723, 1795061379740, 172800000, 1795234179723, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '3b768eec4fb0447a', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061379722, 1795061379740, 172800000, 1795234179722, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, '1a498d4c89dd4309', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061379724, 1795061379740, 172800000, 1795234179724, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', '8387afefe926492a', 'call', 1, 1, 2, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061379701),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061379719);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061379740,1795061379747,0],[1795061379740,1795061379747,1],[1795061379740,1795061379747,1]]'),
('once', 'closed', 0, '[[1795061379740,1795061379747,0],[1795061379740,1795061379747,1]]');
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
(2415919105, '{"do":"answer"}');
INSERT INTO turns ("handler", "level_key", "served_key") VALUES
('call', 40532396646334464, 40532396646334464);
INSERT INTO webhooks ("id", "owner", "url", "events", "created_at", "updated_at") VALUES
('wh_f1f65178c06a9083130e4f80', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061376834, 1795061376834);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('fcb9ea72be5e475e', 'vm', 24489, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061376822, 1795061378076, 1795061378076, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('d90bf2c4c51b4a9b', 'vm', 24548, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061378075, 1795061379697, 1795061379697, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('8387afefe926492a', 'vm', 24652, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061379692, 1795061379707, 1795061379707, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('2ba3bfe4b48d455f', 'vm', 24652, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061379725, 1795061379725, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
