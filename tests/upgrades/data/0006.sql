-- A database of revision 0006 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061326953
-- digest of the revision: 0c89b2367e7b587e4f48168025c7e39af9311bd4a2cc4d310d8b64304ebed878
-- paid: 8700475085e278f4f8b0693cbc9891223609b753
-- paid: 85e6912c5ff754b6273ee3b63ff62969cc55cbf0
-- paid: aefe3a1e0560b7130dfe2bcd3260c03da93c946c
-- paid: bcf728ecff7e7bbf441a7f2f40617450baffa488
-- paid: 297d9465e9b0b24699a2b4e8f449f3db163b8d83
-- paid: bfd23bef23c62b252feda87ad1868440abc0366e
-- paid: f91eece4c9316a992dfcf0cc0bcf93ec2302be27
-- paid: 98d119146b40d465e9794e233cfbf29c88e4d578
-- paid: 9107d5f262d80a0b5303c6226597f3b378f8782c
-- paid: b1b06f200a2ffe9c7c3a53d118e112956f3efab9
-- paid: e9926d2baa437c53dfa04d27f745cb4cb3610143
-- paid: b059570437a08b9137d6a3ae674737b047c2e8a9
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061323945, 1795061324160, 200, '{"status_code":200,"request_id":"req_f1b71200000003","body":{"id":"chatcmpl-f1b71200000002","object":"chat.completion","created":1795061323,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061325756, 1795061325977, 200, '{"status_code":200,"request_id":"req_f1b71200000009","body":{"id":"chatcmpl-f1b71200000007","object":"chat.completion","created":1795061325,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061326879, 1795061326891, '{"key":"8700475085e278f4f8b0693cbc9891223609b753"}'),
(1610612736, 1, 1, 'succeeded', 1795061326963, 1795061326969, '{"key":"85e6912c5ff754b6273ee3b63ff62969cc55cbf0"}'),
(1610612737, 1, 1, 'succeeded', 1795061326963, 1795061326969, '{"key":"aefe3a1e0560b7130dfe2bcd3260c03da93c946c"}'),
(1879048192, 1, 1, 'succeeded', 1795061326963, 1795061326969, '{"key":"297d9465e9b0b24699a2b4e8f449f3db163b8d83"}'),
(2147483648, 1, 1, 'succeeded', 1795061326963, 1795061326969, '{"key":"f91eece4c9316a992dfcf0cc0bcf93ec2302be27"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061326963, 1795061326969, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061326963, 1795061326969, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061326963, 1795061326969, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_35028f46bf6647fcf5aae664', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-891ccb35d35ac52d1667e7a9', '24h', 'gpt-4o-mini', 1795061323924, 1795147723924, 1795061323933, 5, 1795061323950);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061323851);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061325754, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061325754, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061326927, 'paused'),
(4, 'job:5', 1795061326933, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-891ccb35d35ac52d1667e7a9', 'local', 'requests.jsonl', 'batch', 920, 1795061323915, 1797653323915, 'files/c0cac4bb61fa742740a4b5be', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061323939, 1795061323945, 2, 1, 1, 1795061323939, 1795061323939, 1795061323945, 1795147723926, 31, 16),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061325939, 1795061324164, 2, 1, 1, 1795061323939, 1795061323939, 1795061324164, 1795147723926, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061324939, 1795061323945, 1, 1, 100, 1795061323939, 1795061323939, 1795061323945, 1795061324157, 1795147723926, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061326939, 1795061323939, 1795061323939, 1795147723926, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061327939, 1795061323939, 1795061323939, 1795147723926, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061325727, 1795061325756, 1, 1, 100, 1795061325727, 1795061325727, 1795061325756, 1795061325978, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061326727, '24997d38ccd94968:2', 1795061326879, 1795061325756, 1, 1795061325727, 1795061325727, 1795061325756, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061327727, '24997d38ccd94968:4', 1795061326879, 1795061325982, 1, 1795061325727, 1795061325727, 1795061325982, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061328727, 1795061325727, 1795061325727, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061329727, 1795061325727, 1795061325727, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061326836, 1795061326879, 1, 1, 100, 1795061326836, 1795061326836, 1795061326879, 1795061326892),
(1610612736, 6, 'call', 'succeeded', 1795050526935, 1795061326963, 1, 1, 100, 1795061326935, 1795061326935, 1795061326963, 1795061326970),
(1610612737, 6, 'call', 'succeeded', 1795050527935, 1795061326963, 1, 1, 100, 1795061326935, 1795061326935, 1795061326963, 1795061326970),
(1879048192, 7, 'look_up', 'succeeded', 1795050526937, 1795061626963, 1, 1, 100, 1795061326937, 1795061326937, 1795061326963, 1795061326970),
(2147483648, 8, 'once', 'succeeded', 1795050526939, 1795061326963, 1, 1, 100, 1795061326939, 1795061326939, 1795061326963, 1795061326970);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061326925, 4503599627370500, 1795061326925, 1795061326925),
(1073741825, 4, 'call', 'queued', 1795061327925, 4503599627370500, 1795061326925, 1795061326925);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061326928, 1, 1795061326928, 1795061326928, 1795061326934);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050528935, 1795061326963, 1, 1, 1795061326935, 1795061326935, 1795061326963, 1795061326970, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050527939, 1795061326963, 1, 1, 1795061326939, 1795061326939, 1795061326963, 1795061326970, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050529935, 1795061334935, 1795061326963, 1, 1, 1795061326935, 1795061326935, 1795061326963, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050530935, '4316884b2d07407a:1', 1795061416963, 1795061326963, 1, 1795061326935, 1795061326935, 1795061326963),
(1879048193, 7, 'look_up', 'submitting', 1795050527937, '4316884b2d07407a:1', 1795061416963, 1795061626963, 1, 1795061326937, 1795061326937, 1795061326963),
(1879048194, 7, 'look_up', 'submitting', 1795050528937, '4316884b2d07407a:3', 1795061416979, 1795061626979, 1, 1795061326937, 1795061326937, 1795061326979),
(2147483650, 8, 'once', 'submitting', 1795050528939, '4316884b2d07407a:1', 1795061416963, 1795061326963, 1, 1795061326939, 1795061326939, 1795061326963);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050529937, 1795061326937, 1795061326937);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050526946, 1795061331970, 1795061326963, 1, 1795061326946, 1795061326946, 1795061326963, 'task of b1b06f200a2ffe9c7c3a53d118e112956f3efab9'),
(2415919105, 9, 'task', 'processing', 1795050527946, 1795061331970, 1795061326963, 1, 1795061326946, 1795061326946, 1795061326963, 'task of e9926d2baa437c53dfa04d27f745cb4cb3610143');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_35028f46bf6647fcf5aae664', '7670b501c8d845eb', 'batch:batch_35028f46bf6647fcf5aae664', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 2, 1795061323939, 1795061323945, 2592000000, 1797653323939, 1795147723926, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', '75c39fe066404b41', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061325727, 1795061325756, 2592000000, 1797653325727, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '3fee44e91cf34a28', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061326836, 1795061326879, 1795061326892, 172800000, 1795234126836);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, 'd2778dc3116d4108', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061326925, 1795061326927, 172800000, 1795234126925);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '1750bd681efb4bc3', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061326928, 1795061326934, 172800000, 1795234126928);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, 'db50c57da5f14202', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061326935, 1795061326963, 172800000, 1795234126935),
(8, 'local', 'once', 'running', 1, 3, '38f6a24299a24a53', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061326939, 1795061326963, 172800000, 1795234126939);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '679b9bf654304df8', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061326937, 1795061326963, 172800000, 1795234126937);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, 'b9ba8e8452eb41a2', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061326946, 1795061326963, 172800000, 1795234126946);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917688, 'call', 'beaf7b4c138745f5', 'call', 1, 1, 12, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061326892),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061326934);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061326963,1795061326969,0],[1795061326963,1795061326969,1],[1795061326963,1795061326969,1]]'),
('once', 'closed', 0, '[[1795061326963,1795061326969,0],[1795061326963,1795061326969,1]]');
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
INSERT INTO webhooks ("id", "owner", "url", "events", "created_at", "updated_at") VALUES
('wh_e8b6e6e4e0b2184967a3d75f', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061323889, 1795061323889);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('d69bbbf22ea14d3b', 'vm', 23096, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061323862, 1795061325740, 1795061325740, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('24997d38ccd94968', 'vm', 23139, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061325736, 1795061326879, 1795061326879, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('beaf7b4c138745f5', 'vm', 23149, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061326871, 1795061326911, 1795061326911, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('4316884b2d07407a', 'vm', 23149, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061326953, 1795061326953, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
