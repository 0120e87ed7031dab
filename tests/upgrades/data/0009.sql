-- A database of revision 0009 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061356951
-- digest of the revision: d02a4f99a1345b2b09c6e2b72db6062812e959a01b4a16cae957c5dc357acf2b
-- paid: 9b813aac353822240ed4ed6eb05c2c24fd6c741e
-- paid: d4df03a12739173c55469314a10305e826f22d2b
-- paid: 47838bcb33e2bcff141d6f4fc9ee2096a6ac8625
-- paid: 3515f2564e64a84aa3b19d389df75aecf16b7bb6
-- paid: 66815bcabfd776246768ebf80b3ab708ccb9e6f3
-- paid: 9717c81de922f5da7e460f1d642d32c4cc8faf62
-- paid: 9f1ee2bf2ca194867f2c4431c4a3992b13bc5d75
-- paid: d022a75417c873c5266ed041f377d4512cb3c07f
-- paid: 49edb0fbcd252b10dca961bcc20c2e4015cec873
-- paid: 0f508ea2dea4b4317064173850211b7e07fd008b
-- paid: 44a122f4eb381584719bc51a39aad69dcb24627a
-- paid: f192ad35c04b33ce213d7c721b645f8e887dac06
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061354926, 1795061355145, 200, '{"status_code":200,"request_id":"req_e7048f00000003","body":{"id":"chatcmpl-e7048f00000002","object":"chat.completion","created":1795061354,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061356205, 1795061356417, 200, '{"status_code":200,"request_id":"req_e7048f00000009","body":{"id":"chatcmpl-e7048f00000007","object":"chat.completion","created":1795061356,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061356918, 1795061356920, '{"key":"9b813aac353822240ed4ed6eb05c2c24fd6c741e"}'),
(1610612736, 1, 1, 'succeeded', 1795061356958, 1795061356959, '{"key":"d4df03a12739173c55469314a10305e826f22d2b"}'),
(1610612737, 1, 1, 'succeeded', 1795061356958, 1795061356959, '{"key":"47838bcb33e2bcff141d6f4fc9ee2096a6ac8625"}'),
(1879048192, 1, 1, 'succeeded', 1795061356958, 1795061356962, '{"key":"66815bcabfd776246768ebf80b3ab708ccb9e6f3"}'),
(2147483648, 1, 1, 'succeeded', 1795061356958, 1795061356962, '{"key":"9f1ee2bf2ca194867f2c4431c4a3992b13bc5d75"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061356958, 1795061356959, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061356958, 1795061356959, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061356958, 1795061356962, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_14aa770f68d3cee74e8e8ab0', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-1c12401f2b195dea89d9ae38', '24h', 'gpt-4o-mini', 1795061354914, 1795147754914, 1795061354923, 5, 1795061354932);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061404839);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061354845);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061356199, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061356199, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061356926, 'paused'),
(4, 'job:5', 1795061356928, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-1c12401f2b195dea89d9ae38', 'local', 'requests.jsonl', 'batch', 920, 1795061354905, 1797653354905, 'files/c0d1113539c2db538e512218', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061354924, 1795061354926, 2, 1, 1, 1795061354924, 1795061354924, 1795061354926, 1795147754915, 31, 16),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061356924, 1795061355150, 2, 1, 1, 1795061354924, 1795061354924, 1795061355150, 1795147754915, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061355924, 1795061354926, 1, 1, 100, 1795061354924, 1795061354924, 1795061354926, 1795061355145, 1795147754915, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061357924, 1795061354924, 1795061354924, 1795147754915, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061358924, 1795061354924, 1795061354924, 1795147754915, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061356187, 1795061356205, 1, 1, 100, 1795061356187, 1795061356187, 1795061356205, 1795061356417, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061357187, '87fc99b086e44d99:2', 1795061356918, 1795061356205, 1, 1795061356187, 1795061356187, 1795061356205, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061358187, '87fc99b086e44d99:4', 1795061356918, 1795061356419, 1, 1795061356187, 1795061356187, 1795061356419, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061359187, 1795061356187, 1795061356187, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061360187, 1795061356187, 1795061356187, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061356901, 1795061356918, 1, 1, 100, 1795061356901, 1795061356901, 1795061356918, 1795061356921),
(1610612736, 6, 'call', 'succeeded', 1795050556933, 1795061356958, 1, 1, 100, 1795061356933, 1795061356933, 1795061356958, 1795061356963),
(1610612737, 6, 'call', 'succeeded', 1795050557933, 1795061356958, 1, 1, 100, 1795061356933, 1795061356933, 1795061356958, 1795061356963),
(1879048192, 7, 'look_up', 'succeeded', 1795050556937, 1795061656958, 1, 1, 100, 1795061356937, 1795061356937, 1795061356958, 1795061356963),
(2147483648, 8, 'once', 'succeeded', 1795050556938, 1795061356958, 1, 1, 100, 1795061356938, 1795061356938, 1795061356958, 1795061356963);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061356925, 4503599627370500, 1795061356925, 1795061356925),
(1073741825, 4, 'call', 'queued', 1795061357925, 4503599627370500, 1795061356925, 1795061356925);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061356927, 1, 1795061356927, 1795061356927, 1795061356928);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050558933, 1795061356958, 1, 1, 1795061356933, 1795061356933, 1795061356958, 1795061356963, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050557938, 1795061356958, 1, 1, 1795061356938, 1795061356938, 1795061356958, 1795061356963, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050559933, 1795061365444, 1795061356958, 1, 1, 1795061356933, 1795061356933, 1795061356958, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050560933, 'e9323e6be2bd48a1:1', 1795061446958, 1795061356958, 1, 1795061356933, 1795061356933, 1795061356958),
(1879048193, 7, 'look_up', 'submitting', 1795050557937, 'e9323e6be2bd48a1:1', 1795061446958, 1795061656958, 1, 1795061356937, 1795061356937, 1795061356958),
(1879048194, 7, 'look_up', 'submitting', 1795050558937, 'e9323e6be2bd48a1:3', 1795061446965, 1795061656965, 1, 1795061356937, 1795061356937, 1795061356965),
(2147483650, 8, 'once', 'submitting', 1795050558938, 'e9323e6be2bd48a1:1', 1795061446958, 1795061356958, 1, 1795061356938, 1795061356938, 1795061356958);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050559937, 1795061356937, 1795061356937);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050556944, 1795061361963, 1795061356958, 1, 1795061356944, 1795061356944, 1795061356958, 'task of 0f508ea2dea4b4317064173850211b7e07fd008b'),
(2415919105, 9, 'task', 'processing', 1795050557944, 1795061361963, 1795061356958, 1, 1795061356944, 1795061356944, 1795061356958, 'task of 44a122f4eb381584719bc51a39aad69dcb24627a');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_14aa770f68d3cee74e8e8ab0', 'c0243aa7b1c14a82', 'batch:batch_14aa770f68d3cee74e8e8ab0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 2, 1795061354924, 1795061354926, 2592000000, 1797653354924, 1795147754915, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', 'f8a2bc0dbc6e4109', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061356187, 1795061356205, 2592000000, 1797653356187, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '863b75262c89439d', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061356901, 1795061356918, 1795061356921, 172800000, 1795234156901);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '923fd8beffae4faf', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061356925, 1795061356926, 172800000, 1795234156925);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '9cdf101ab22441ed', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061356927, 1795061356928, 172800000, 1795234156927);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, '2b2ddae15a44429d', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061356933, 1795061356958, 172800000, 1795234156933),
(8, 'local', 'once', 'running', 1, 3, '779f5d3da4b04a91', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061356938, 1795061356958, 172800000, 1795234156938);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, 'd9fa4cc19c4d4422', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061356937, 1795061356958, 172800000, 1795234156937);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, 'a25f83e7f20546e7', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061356944, 1795061356958, 172800000, 1795234156944);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', 'b4dc8b0cf2f64e16', 'call', 1, 1, 2, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061356921),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061356928);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061356958,1795061356959,0],[1795061356958,1795061356959,1],[1795061356958,1795061356959,1]]'),
('once', 'closed', 0, '[[1795061356958,1795061356962,0],[1795061356958,1795061356962,1]]');
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
('wh_855454a96d39a479ab35776a', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061354865, 1795061354865);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('248932e1dd96421a', 'vm', 23703, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061354847, 1795061356194, 1795061356194, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('87fc99b086e44d99', 'vm', 23844, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061356189, 1795061356918, 1795061356918, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('b4dc8b0cf2f64e16', 'vm', 23985, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061356916, 1795061356924, 1795061356924, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('e9323e6be2bd48a1', 'vm', 23985, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061356951, 1795061356951, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
