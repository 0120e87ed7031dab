-- A database of revision 0007 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061338456
-- digest of the revision: 3cd56204cd0e830e0acfabea9f0e3b4f3c1dab51542368c08bc4d6fb6a607087
-- paid: 02f478bc4e3cd8f1a3ab06a9c8a90424b0a8e518
-- paid: 708a5d7f597d15c77c29ed69ad7ee2ee2e79af78
-- paid: 259babc0ff925619b02c6f3d7758f9909b781a0a
-- paid: 9426a0a91fd50b87574429d82fa9c277fb67f666
-- paid: 4ecceb8233f68e3c06f96cf6da55d74e71ea2d68
-- paid: 9f499e7fafaff53fe88a900a9cd3bebb18bb5e3a
-- paid: 0ad3c908878375943e6910368b3d53598844a4c4
-- paid: 33bb7a9ffef9c9ca858624ad813ac807c4776d25
-- paid: 614d347b181d6f616c875a28cf71ff67b936e23e
-- paid: 0d1c993149102416ffd937deda7d099173da16e4
-- paid: 7f0bb15a024ef73d07e84938b8fcd9f3db61244e
-- paid: 1ca6839ebafa8b6dd0af5e473db579638d8c6801
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061335233, 1795061335446, 200, '{"status_code":200,"request_id":"req_20742e00000003","body":{"id":"chatcmpl-20742e00000002","object":"chat.completion","created":1795061335,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061337115, 1795061337361, 200, '{"status_code":200,"request_id":"req_20742e00000007","body":{"id":"chatcmpl-20742e00000005","object":"chat.completion","created":1795061337,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061338376, 1795061338381, '{"key":"02f478bc4e3cd8f1a3ab06a9c8a90424b0a8e518"}'),
(1610612736, 1, 1, 'succeeded', 1795061338462, 1795061338466, '{"key":"708a5d7f597d15c77c29ed69ad7ee2ee2e79af78"}'),
(1610612737, 1, 1, 'succeeded', 1795061338462, 1795061338466, '{"key":"259babc0ff925619b02c6f3d7758f9909b781a0a"}'),
(1879048192, 1, 1, 'succeeded', 1795061338462, 1795061338466, '{"key":"4ecceb8233f68e3c06f96cf6da55d74e71ea2d68"}'),
(2147483648, 1, 1, 'succeeded', 1795061338462, 1795061338466, '{"key":"0ad3c908878375943e6910368b3d53598844a4c4"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061338462, 1795061338466, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061338462, 1795061338466, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061338462, 1795061338466, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_481451644f5c7ed2461d8a42', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-e097ae46d8a58d364a1d2218', '24h', 'gpt-4o-mini', 1795061335209, 1795147735209, 1795061335218, 5, 1795061335238);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061385113);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061335123);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061337144, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(2, 'job:4', 1795061338417, 'paused'),
(3, 'job:5', 1795061338422, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-e097ae46d8a58d364a1d2218', 'local', 'requests.jsonl', 'batch', 920, 1795061335197, 1797653335197, 'files/e576269c61f71bb9ab3a5161', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061335225, 1795061335233, 2, 1, 1, 1795061335225, 1795061335225, 1795061335233, 1795147735212, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061336225, 1795061335233, 1, 1, 100, 1795061335225, 1795061335225, 1795061335233, 1795061335447, 1795147735212, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061337225, 1795061335225, 1795061335225, 1795147735212, 31, 16),
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061338225, 1795061335225, 1795061335225, 1795147735212, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061339225, 1795061335225, 1795061335225, 1795147735212, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061337092, 1795061337115, 1, 1, 100, 1795061337092, 1795061337092, 1795061337115, 1795061337357, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061338092, '7b026ccf3cce4e23:3', 1795061338374, 1795061337154, 1, 1795061337092, 1795061337092, 1795061337154, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061339092, '7b026ccf3cce4e23:5', 1795061338374, 1795061337358, 1, 1795061337092, 1795061337092, 1795061337358, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061340092, 1795061337092, 1795061337092, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061341092, 1795061337092, 1795061337092, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061338349, 1795061338376, 1, 1, 100, 1795061338349, 1795061338349, 1795061338376, 1795061338382),
(1610612736, 6, 'call', 'succeeded', 1795050538429, 1795061338462, 1, 1, 100, 1795061338429, 1795061338429, 1795061338462, 1795061338469),
(1610612737, 6, 'call', 'succeeded', 1795050539429, 1795061338462, 1, 1, 100, 1795061338429, 1795061338429, 1795061338462, 1795061338469),
(1879048192, 7, 'look_up', 'succeeded', 1795050538436, 1795061638462, 1, 1, 100, 1795061338436, 1795061338436, 1795061338462, 1795061338469),
(2147483648, 8, 'once', 'succeeded', 1795050538441, 1795061338462, 1, 1, 100, 1795061338441, 1795061338441, 1795061338462, 1795061338469);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061338405, 4503599627370500, 1795061338405, 1795061338405),
(1073741825, 4, 'call', 'queued', 1795061339405, 4503599627370500, 1795061338405, 1795061338405);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061338421, 1, 1795061338421, 1795061338421, 1795061338425);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050540429, 1795061338462, 1, 1, 1795061338429, 1795061338429, 1795061338462, 1795061338469, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050539441, 1795061338462, 1, 1, 1795061338441, 1795061338441, 1795061338462, 1795061338469, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050541429, 1795061347791, 1795061338462, 1, 1, 1795061338429, 1795061338429, 1795061338462, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050542429, 'a92c9463eee14a19:1', 1795061428462, 1795061338462, 1, 1795061338429, 1795061338429, 1795061338462),
(1879048193, 7, 'look_up', 'submitting', 1795050539436, 'a92c9463eee14a19:1', 1795061428462, 1795061638462, 1, 1795061338436, 1795061338436, 1795061338462),
(1879048194, 7, 'look_up', 'submitting', 1795050540436, 'a92c9463eee14a19:3', 1795061428487, 1795061638487, 1, 1795061338436, 1795061338436, 1795061338487),
(2147483650, 8, 'once', 'submitting', 1795050540441, 'a92c9463eee14a19:1', 1795061428462, 1795061338462, 1, 1795061338441, 1795061338441, 1795061338462);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050541436, 1795061338436, 1795061338436);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050538453, 1795061343469, 1795061338462, 1, 1795061338453, 1795061338453, 1795061338462, 'task of 0d1c993149102416ffd937deda7d099173da16e4'),
(2415919105, 9, 'task', 'processing', 1795050539453, 1795061343469, 1795061338462, 1, 1795061338453, 1795061338453, 1795061338462, 'task of 7f0bb15a024ef73d07e84938b8fcd9f3db61244e');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_481451644f5c7ed2461d8a42', '11658e39f0dc4584', 'batch:batch_481451644f5c7ed2461d8a42', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1, 1795061335225, 1795061335233, 2592000000, 1797653335225, 1795147735212, 1000000, 6, 31, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', '77cd31a280014992', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061337092, 1795061337115, 2592000000, 1797653337092, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '304c0423f5f0412f', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061338349, 1795061338376, 1795061338382, 172800000, 1795234138349);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, 'bf962da13f214799', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061338405, 1795061338417, 172800000, 1795234138405);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '603cfbeac4234405', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061338421, 1795061338425, 172800000, 1795234138421);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, '120437e4ba8344c7', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061338429, 1795061338462, 172800000, 1795234138429),
(8, 'local', 'once', 'running', 1, 3, '44da29cd7e3b41ab', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061338441, 1795061338462, 172800000, 1795234138441);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '9cb62c6af6c040f9', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061338436, 1795061338462, 172800000, 1795234138436);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, '603152bdc52e45f6', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061338453, 1795061338462, 172800000, 1795234138453);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917688, 'call', 'd18c31d2e9ec4e48', 'call', 1, 1, 5, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061338382),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061338425);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061338462,1795061338466,0],[1795061338462,1795061338466,1],[1795061338462,1795061338466,1]]'),
('once', 'closed', 0, '[[1795061338462,1795061338466,0],[1795061338462,1795061338466,1]]');
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
('wh_7d22ef4bc5e38db62d537e64', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061335168, 1795061335168);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('f542556f4f4a4b00', 'vm', 23187, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061335130, 1795061337115, 1795061337115, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('7b026ccf3cce4e23', 'vm', 23203, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061337100, 1795061338374, 1795061338374, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('d18c31d2e9ec4e48', 'vm', 23215, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061338368, 1795061338397, 1795061338397, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('a92c9463eee14a19', 'vm', 23215, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061338456, 1795061338456, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
