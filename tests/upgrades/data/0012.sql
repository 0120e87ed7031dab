-- A database of revision 0012 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061372339
-- digest of the revision: 68fb6bf232ca8043a4ea8903fd2169d7479efa62c1df9a54247efca040d14fdc
-- paid: a6e4d7d7d9acde32ad12b13dd8d52b90328644d1
-- paid: 83b64202e1eb357a9fdec31506ab4dda6342315f
-- paid: b8cfe6a909a6cf82616e5e5f6dc2c6f34c7df34b
-- paid: 374ae88ffb8ab75c7979d861549a34814f8dc99e
-- paid: 8728413b6d3b0d95ab29cf1b2eb9c5329f223445
-- paid: eb62722a6a57e643d5d46f71c305b9ed3a8dfeec
-- paid: f71ee7096add39b60c9465d97bc2b8225a4474c6
-- paid: 693d096f60cede2948fc336e5efa44eb5c8332bd
-- paid: ea7d718feadc19fcda5a056bb2ede1814525c7ca
-- paid: 2dc9ced469458c4cfb9c99e5acb72ef533c1ce42
-- paid: 579334fbd34a9cc2bb6345e249acccdd8e50c175
-- paid: 1db84683926ef10c9ea2c995828f198392edf8ad
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061370109, 1795061370320, 200, '{"status_code":200,"request_id":"req_7337be00000003","body":{"id":"chatcmpl-7337be00000002","object":"chat.completion","created":1795061370,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061371082, 1795061371286, 200, '{"status_code":200,"request_id":"req_7337be00000009","body":{"id":"chatcmpl-7337be00000007","object":"chat.completion","created":1795061371,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061372322, 1795061372324, '{"key":"a6e4d7d7d9acde32ad12b13dd8d52b90328644d1"}'),
(1610612736, 1, 1, 'succeeded', 1795061372342, 1795061372345, '{"key":"83b64202e1eb357a9fdec31506ab4dda6342315f"}'),
(1610612737, 1, 1, 'succeeded', 1795061372342, 1795061372345, '{"key":"b8cfe6a909a6cf82616e5e5f6dc2c6f34c7df34b"}'),
(1879048192, 1, 1, 'succeeded', 1795061372342, 1795061372346, '{"key":"8728413b6d3b0d95ab29cf1b2eb9c5329f223445"}'),
(2147483648, 1, 1, 'succeeded', 1795061372342, 1795061372346, '{"key":"f71ee7096add39b60c9465d97bc2b8225a4474c6"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061372342, 1795061372346, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061372342, 1795061372346, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061372342, 1795061372346, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_db6d43eebec3ce777a557007', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-6e48a21d2a853aec21a1e481', '24h', 'gpt-4o-mini', 1795061370100, 1795147770100, 1795061370103, 5, 1795061370115);
INSERT INTO budgets ("id", "owner", "handler", "period", "limit_micros", "reserved_micros") VALUES
(1, '', '', 'total', 50000000, 62);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061420054);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061370062);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061371080, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061371080, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061372334, 'paused'),
(4, 'job:5', 1795061372335, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-6e48a21d2a853aec21a1e481', 'local', 'requests.jsonl', 'batch', 920, 1795061370092, 1797653370092, 'files/89e7d68b8844703d413fe0da', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795061370109, 2, 1, 1, 1795061370105, 1795061370105, 1795061370109, 1795147770101, 31, 16, 1),
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061370325, 2, 1, 1, 1795061370105, 1795061370105, 1795061370325, 1795147770101, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795061370109, 1, 1, 100, 1795061370105, 1795061370105, 1795061370109, 1795061370321, 1795147770101, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061370105, 1795061370105, 1795147770101, 31, 16),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061370105, 1795061370105, 1795147770101, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795061371082, 1, 1, 100, 1795061371072, 1795061371072, 1795061371082, 1795061371288, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, '0b222645182343b8:2', 1795061372322, 1795061371082, 1, 1795061371072, 1795061371072, 1795061371082, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334466, '0b222645182343b8:4', 1795061372322, 1795061371292, 1, 1795061371072, 1795061371072, 1795061371292, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061371072, 1795061371072, 31, 16),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061371072, 1795061371072, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795061372322, 1, 1, 100, 1795061372310, 1795061372310, 1795061372322, 1795061372325, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795061372342, 1, 1, 100, 1795061372337, 1795061372337, 1795061372342, 1795061372346, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795061372342, 1, 1, 100, 1795061372337, 1795061372337, 1795061372342, 1795061372346, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795061672342, 1, 1, 100, 1795061372337, 1795061372337, 1795061372342, 1795061372346, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795061372342, 1, 1, 100, 1795061372338, 1795061372338, 1795061372342, 1795061372346, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795061372333, 1795061372333),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795061372333, 1795061372333);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795061372335, 1795061372335, 1795061372336);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795061372342, 1, 1, 1795061372337, 1795061372337, 1795061372342, 1795061372346, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795061377489, 1795061372342, 1, 1, 1795061372337, 1795061372337, 1795061372342, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, '5480bfadd9f64eee:1', 1795061462342, 1795061372342, 1, 1795061372337, 1795061372337, 1795061372342),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, '5480bfadd9f64eee:1', 1795061462342, 1795061672342, 1, 1795061372337, 1795061372337, 1795061372342),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, '5480bfadd9f64eee:3', 1795061462351, 1795061672351, 1, 1795061372337, 1795061372337, 1795061372351),
(2147483650, 8, 'once', 'submitting', 27021597764222978, '5480bfadd9f64eee:1', 1795061462342, 1795061372342, 1, 1795061372338, 1795061372338, 1795061372342);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795061372337, 1795061372337);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795061372342, 1, 1, 1795061372338, 1795061372338, 1795061372342, 1795061372346, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795061377346, 1795061372342, 1, 1795061372338, 1795061372338, 1795061372342, 'task of 2dc9ced469458c4cfb9c99e5acb72ef533c1ce42', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795061377346, 1795061372342, 1, 1795061372338, 1795061372338, 1795061372342, 'task of 579334fbd34a9cc2bb6345e249acccdd8e50c175', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_db6d43eebec3ce777a557007', 'b9f005549c6c4b98', 'batch:batch_db6d43eebec3ce777a557007', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 2, 1795061370105, 1795061370109, 1209600000, 1796270970105, 1795147770101, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', '2b2208f0f88f4685', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061371072, 1795061371082, 1209600000, 1796270971072, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '8312cdbffd2f49b6', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061372310, 1795061372322, 1795061372325, 172800000, 1795234172310, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '247b45c420194137', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061372333, 1795061372334, 172800000, 1795234172333, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, 'f3308300e0e3450e', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061372335, 1795061372336, 172800000, 1795234172335, 40532396646334464, 40532396646334464, 40532396646334465, 1795061372335);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, '780768ae34e249c2', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061372337, 1795061372342, 172800000, 1795234172337, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, 'd58e10126ce34cc7', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061372338, 1795061372342, 172800000, 1795234172338, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '18f70afbefd94058', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061372337, 1795061372342, 172800000, 1795234172337, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, 'becc7973ba06481b', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061372338, 1795061372342, 172800000, 1795234172338, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', 'def6b106e278446c', 'call', 1, 1, 2, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061372325),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061372336);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061372342,1795061372345,1],[1795061372342,1795061372345,1],[1795061372342,1795061372346,0]]'),
('once', 'closed', 0, '[[1795061372342,1795061372346,0],[1795061372342,1795061372346,1]]');
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
('wh_ec46576a8f18c3ed19fc18d1', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061370079, 1795061370079);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('872f77127af44846', 'vm', 24340, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061370065, 1795061371076, 1795061371076, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('0b222645182343b8', 'vm', 24426, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061371074, 1795061372322, 1795061372322, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('def6b106e278446c', 'vm', 24459, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061372319, 1795061372331, 1795061372331, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('5480bfadd9f64eee', 'vm', 24459, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061372339, 1795061372339, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
