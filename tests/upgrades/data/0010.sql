-- A database of revision 0010 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795059641602
-- digest of the revision: 30c51d803be17125aa413fb4946be9436e315b3910006bbc0ef5c72fd859cdf5
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
(268435457, 1, 1, 'succeeded', 1795059639577, 1795059639796, 200, '{"status_code":200,"request_id":"req_e7048f00000003","body":{"id":"chatcmpl-e7048f00000002","object":"chat.completion","created":1795061354,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795059640856, 1795059641068, 200, '{"status_code":200,"request_id":"req_e7048f00000009","body":{"id":"chatcmpl-e7048f00000007","object":"chat.completion","created":1795061356,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795059641569, 1795059641571, '{"key":"9b813aac353822240ed4ed6eb05c2c24fd6c741e"}'),
(1610612736, 1, 1, 'succeeded', 1795059641609, 1795059641610, '{"key":"d4df03a12739173c55469314a10305e826f22d2b"}'),
(1610612737, 1, 1, 'succeeded', 1795059641609, 1795059641610, '{"key":"47838bcb33e2bcff141d6f4fc9ee2096a6ac8625"}'),
(1879048192, 1, 1, 'succeeded', 1795059641609, 1795059641613, '{"key":"66815bcabfd776246768ebf80b3ab708ccb9e6f3"}'),
(2147483648, 1, 1, 'succeeded', 1795059641609, 1795059641613, '{"key":"9f1ee2bf2ca194867f2c4431c4a3992b13bc5d75"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795059641609, 1795059641610, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795059641609, 1795059641610, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795059641609, 1795059641613, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_14aa770f68d3cee74e8e8ab0', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-1c12401f2b195dea89d9ae38', '24h', 'gpt-4o-mini', 1795059639565, 1795146039565, 1795059639574, 5, 1795059639583);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795059689490);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795059639496);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795059640850, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795059640850, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795059641577, 'paused'),
(4, 'job:5', 1795059641579, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-1c12401f2b195dea89d9ae38', 'local', 'requests.jsonl', 'batch', 920, 1795059639556, 1797651639556, 'files/c0d1113539c2db538e512218', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795059639575, 1795059639577, 2, 1, 1, 1795059639575, 1795059639575, 1795059639577, 1795146039566, 31, 16),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795059641575, 1795059639801, 2, 1, 1, 1795059639575, 1795059639575, 1795059639801, 1795146039566, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795059640575, 1795059639577, 1, 1, 100, 1795059639575, 1795059639575, 1795059639577, 1795059639796, 1795146039566, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795059642575, 1795059639575, 1795059639575, 1795146039566, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795059643575, 1795059639575, 1795059639575, 1795146039566, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795059640838, 1795059640856, 1, 1, 100, 1795059640838, 1795059640838, 1795059640856, 1795059641068, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795059641838, '87fc99b086e44d99:2', 1795059641569, 1795059640856, 1, 1795059640838, 1795059640838, 1795059640856, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795059642838, '87fc99b086e44d99:4', 1795059641569, 1795059641070, 1, 1795059640838, 1795059640838, 1795059641070, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795059643838, 1795059640838, 1795059640838, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795059644838, 1795059640838, 1795059640838, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795059641552, 1795059641569, 1, 1, 100, 1795059641552, 1795059641552, 1795059641569, 1795059641572),
(1610612736, 6, 'call', 'succeeded', 1795048841584, 1795059641609, 1, 1, 100, 1795059641584, 1795059641584, 1795059641609, 1795059641614),
(1610612737, 6, 'call', 'succeeded', 1795048842584, 1795059641609, 1, 1, 100, 1795059641584, 1795059641584, 1795059641609, 1795059641614),
(1879048192, 7, 'look_up', 'succeeded', 1795048841588, 1795059941609, 1, 1, 100, 1795059641588, 1795059641588, 1795059641609, 1795059641614),
(2147483648, 8, 'once', 'succeeded', 1795048841589, 1795059641609, 1, 1, 100, 1795059641589, 1795059641589, 1795059641609, 1795059641614);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795059641576, 4503599627370500, 1795059641576, 1795059641576),
(1073741825, 4, 'call', 'queued', 1795059642576, 4503599627370500, 1795059641576, 1795059641576);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795059641578, 1, 1795059641578, 1795059641578, 1795059641579);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795048843584, 1795059641609, 1, 1, 1795059641584, 1795059641584, 1795059641609, 1795059641614, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795048844584, 1795059650095, 1795059641609, 1, 1, 1795059641584, 1795059641584, 1795059641609, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795048845584, 'e9323e6be2bd48a1:1', 1795059731609, 1795059641609, 1, 1795059641584, 1795059641584, 1795059641609),
(1879048193, 7, 'look_up', 'submitting', 1795048842588, 'e9323e6be2bd48a1:1', 1795059731609, 1795059941609, 1, 1795059641588, 1795059641588, 1795059641609),
(1879048194, 7, 'look_up', 'submitting', 1795048843588, 'e9323e6be2bd48a1:3', 1795059731616, 1795059941616, 1, 1795059641588, 1795059641588, 1795059641616),
(2147483650, 8, 'once', 'submitting', 1795048843589, 'e9323e6be2bd48a1:1', 1795059731609, 1795059641609, 1, 1795059641589, 1795059641589, 1795059641609);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795048844588, 1795059641588, 1795059641588);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw") VALUES
(2147483649, 8, 'once', 'failed', 1795048842589, 1795059641609, 1, 1, 1795059641589, 1795059641589, 1795059641609, 1795059641614, 'UNKNOWN', 'unknown');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795048841595, 1795059646614, 1795059641609, 1, 1795059641595, 1795059641595, 1795059641609, 'task of 0f508ea2dea4b4317064173850211b7e07fd008b'),
(2415919105, 9, 'task', 'processing', 1795048842595, 1795059646614, 1795059641609, 1, 1795059641595, 1795059641595, 1795059641609, 'task of 44a122f4eb381584719bc51a39aad69dcb24627a');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_14aa770f68d3cee74e8e8ab0', 'c0243aa7b1c14a82', 'batch:batch_14aa770f68d3cee74e8e8ab0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 2, 1795059639575, 1795059639577, 2592000000, 1797651639575, 1795146039566, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', 'f8a2bc0dbc6e4109', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795059640838, 1795059640856, 2592000000, 1797651640838, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '863b75262c89439d', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795059641552, 1795059641569, 1795059641572, 172800000, 1795232441552);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '923fd8beffae4faf', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795059641576, 1795059641577, 172800000, 1795232441576);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '9cdf101ab22441ed', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795059641578, 1795059641579, 172800000, 1795232441578);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, '2b2ddae15a44429d', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795059641584, 1795059641609, 172800000, 1795232441584),
(8, 'local', 'once', 'running', 1, 3, '779f5d3da4b04a91', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795059641589, 1795059641609, 172800000, 1795232441589);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, 'd9fa4cc19c4d4422', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795059641588, 1795059641609, 172800000, 1795232441588);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, 'a25f83e7f20546e7', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795059641595, 1795059641609, 172800000, 1795232441595);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', 'b4dc8b0cf2f64e16', 'call', 1, 1, 2, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795059641572),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795059641579);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795059641609,1795059641610,0],[1795059641609,1795059641610,1],[1795059641609,1795059641610,1]]'),
('once', 'closed', 0, '[[1795059641609,1795059641613,0],[1795059641609,1795059641613,1]]');
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
('wh_855454a96d39a479ab35776a', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795059639516, 1795059639516);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('248932e1dd96421a', 'vm', 23703, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795059639498, 1795059640845, 1795059640845, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('87fc99b086e44d99', 'vm', 23844, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795059640840, 1795059641569, 1795059641569, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('b4dc8b0cf2f64e16', 'vm', 23985, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795059641567, 1795059641575, 1795059641575, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('e9323e6be2bd48a1', 'vm', 23985, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795059641602, 1795059641602, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
