-- A database of revision 0003 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061294993
-- digest of the revision: e48bc9ed302717f495a9055013aef2d823814384431a704220f7d8d84c6495f6
-- paid: 2ff799852ec3dd18a12a2a7d0d54eb50672bd2a6
-- paid: 93a0a5589bf44601e712c3f7a32018d45cb747f8
-- paid: e428f5b660ebb33d066dba0e215c644d7cb2c728
-- paid: c2dee61d94a623622711358229e5ebdf359c0276
-- paid: 05d3f6a189b208a031c166d0144bf1297367e6df
-- paid: 7acdae40ac1fec2355294898d3e1242868e1df4d
-- paid: f715fcf93ac257605979b7c30b180ca6248a2c35
-- paid: 89f90deac2294d7339cbd1707c027fed73cc7852
-- paid: ccfdeaa5dd4d652bf61c65e4995be6ac580846e5
-- paid: 47daa909906e72bf01e7002d6fa1532999410276
-- paid: 0989d09d635f8f5a39dfdda7c5791660478859fa
-- paid: a26ee4e0599008a82e8cc40b4bf1759c5255d347
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061292313, 1795061292531, 200, '{"status_code":200,"request_id":"req_4de5e100000003","body":{"id":"chatcmpl-4de5e100000002","object":"chat.completion","created":1795061292,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061293941, 1795061294156, 200, '{"status_code":200,"request_id":"req_4de5e100000007","body":{"id":"chatcmpl-4de5e100000006","object":"chat.completion","created":1795061293,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061294941, 1795061294944, '{"key":"2ff799852ec3dd18a12a2a7d0d54eb50672bd2a6"}'),
(1610612736, 1, 1, 'succeeded', 1795061294998, 1795061295000, '{"key":"93a0a5589bf44601e712c3f7a32018d45cb747f8"}'),
(1610612737, 1, 1, 'succeeded', 1795061294998, 1795061295000, '{"key":"e428f5b660ebb33d066dba0e215c644d7cb2c728"}'),
(1879048192, 1, 1, 'succeeded', 1795061294998, 1795061295000, '{"key":"05d3f6a189b208a031c166d0144bf1297367e6df"}'),
(2147483648, 1, 1, 'succeeded', 1795061294998, 1795061295000, '{"key":"f715fcf93ac257605979b7c30b180ca6248a2c35"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061294998, 1795061295000, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061294998, 1795061295000, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061294998, 1795061295000, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_1bf37a4d02c97e860cab7b3b', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-e13dd49b23a0368731c7dbe7', '24h', 'gpt-4o-mini', 1795061292285, 1795147692285, 1795061292302, 5, 1795061292318);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061292197);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061293936, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061293936, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061294961, 'paused'),
(4, 'job:5', 1795061294969, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-e13dd49b23a0368731c7dbe7', 'local', 'requests.jsonl', 'batch', 920, 1795061292276, 1797653292276, 'files/462a80ff923633c925bae934', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061292306, 1795061292313, 2, 1, 1, 1795061292306, 1795061292306, 1795061292313, 1795147692286, 31, 16),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061294306, 1795061292541, 2, 1, 1, 1795061292306, 1795061292306, 1795061292541, 1795147692286, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061293306, 1795061292313, 1, 1, 100, 1795061292306, 1795061292306, 1795061292313, 1795061292531, 1795147692286, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061295306, 1795061292306, 1795061292306, 1795147692286, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061296306, 1795061292306, 1795061292306, 1795147692286, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061293893, 1795061293941, 1, 1, 100, 1795061293893, 1795061293893, 1795061293941, 1795061294154, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061294893, 'fe763b063e424508:2', 1795061294941, 1795061293941, 1, 1795061293893, 1795061293893, 1795061293941, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061295893, 'fe763b063e424508:4', 1795061294941, 1795061294157, 1, 1795061293893, 1795061293893, 1795061294157, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061296893, 1795061293893, 1795061293893, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061297893, 1795061293893, 1795061293893, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061294922, 1795061294941, 1, 1, 100, 1795061294922, 1795061294922, 1795061294941, 1795061294945),
(1610612736, 6, 'call', 'succeeded', 1795050494976, 1795061294998, 1, 1, 100, 1795061294976, 1795061294976, 1795061294998, 1795061295001),
(1610612737, 6, 'call', 'succeeded', 1795050495976, 1795061294998, 1, 1, 100, 1795061294976, 1795061294976, 1795061294998, 1795061295001),
(1879048192, 7, 'look_up', 'succeeded', 1795050494979, 1795061594998, 1, 1, 100, 1795061294979, 1795061294979, 1795061294998, 1795061295001),
(2147483648, 8, 'once', 'succeeded', 1795050494985, 1795061294998, 1, 1, 100, 1795061294985, 1795061294985, 1795061294998, 1795061295001);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061294958, 4503599627370500, 1795061294958, 1795061294958),
(1073741825, 4, 'call', 'queued', 1795061295958, 4503599627370500, 1795061294958, 1795061294958);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061294965, 1, 1795061294965, 1795061294965, 1795061294973);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050496976, 1795061294998, 1, 1, 1795061294976, 1795061294976, 1795061294998, 1795061295001, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050495985, 1795061294998, 1, 1, 1795061294985, 1795061294985, 1795061294998, 1795061295001, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050497976, 1795061304931, 1795061294998, 1, 1, 1795061294976, 1795061294976, 1795061294998, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050498976, '8772a61049904a8d:1', 1795061384998, 1795061294998, 1, 1795061294976, 1795061294976, 1795061294998),
(1879048193, 7, 'look_up', 'submitting', 1795050495979, '8772a61049904a8d:1', 1795061384998, 1795061594998, 1, 1795061294979, 1795061294979, 1795061294998),
(1879048194, 7, 'look_up', 'submitting', 1795050496979, '8772a61049904a8d:3', 1795061385009, 1795061595009, 1, 1795061294979, 1795061294979, 1795061295009),
(2147483650, 8, 'once', 'submitting', 1795050496985, '8772a61049904a8d:1', 1795061384998, 1795061294998, 1, 1795061294985, 1795061294985, 1795061294998);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050497979, 1795061294979, 1795061294979);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050494988, 1795061300001, 1795061294998, 1, 1795061294988, 1795061294988, 1795061294998, 'task of 47daa909906e72bf01e7002d6fa1532999410276'),
(2415919105, 9, 'task', 'processing', 1795050495988, 1795061300001, 1795061294998, 1, 1795061294988, 1795061294988, 1795061294998, 'task of 0989d09d635f8f5a39dfdda7c5791660478859fa');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_1bf37a4d02c97e860cab7b3b', 'c7eff79ae021406c', 'batch:batch_1bf37a4d02c97e860cab7b3b', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 2, 1795061292306, 1795061292313, 2592000000, 1797653292306, 1795147692286, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', '1aa25eca342a4e87', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061293893, 1795061293941, 2592000000, 1797653293893, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '485a477dbe1a4828', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061294922, 1795061294941, 1795061294945, 172800000, 1795234094922);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '999c4cb76614450f', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061294958, 1795061294961, 172800000, 1795234094958);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '5823fd9615a54b12', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061294965, 1795061294973, 172800000, 1795234094965);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, 'd20a8bcfd5dd4bb3', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061294976, 1795061294998, 172800000, 1795234094976),
(8, 'local', 'once', 'running', 1, 3, 'ba9f65b679744aea', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061294985, 1795061294998, 172800000, 1795234094985);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, 'cf9758e048814c5b', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061294979, 1795061294998, 172800000, 1795234094979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, '8c971e71f1c94969', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061294988, 1795061294998, 172800000, 1795234094988);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061294945),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061294973);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061294998,1795061295000,0],[1795061294998,1795061295000,1],[1795061294998,1795061295000,1]]'),
('once', 'closed', 0, '[[1795061294998,1795061295000,0],[1795061294998,1795061295000,1]]');
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
('wh_b00da194a687aa3cf37eadc3', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061292262, 1795061292262);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('38642d1d8a6e44bf', 'vm', 22796, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061292221, 1795061293930, 1795061293930, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('fe763b063e424508', 'vm', 22816, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061293925, 1795061294941, 1795061294941, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('604c6b1e8027436f', 'vm', 22826, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061294937, 1795061294953, 1795061294953, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('8772a61049904a8d', 'vm', 22826, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061294993, 1795061294993, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
