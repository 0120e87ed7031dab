-- A database of revision 0004 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061307637
-- digest of the revision: 7b2b494b7b838c3d9d799ce6133938ab82781e3b228198b06f707cb687af307b
-- paid: 437fff91fbfdb4464f6fb0a25a097f369de9ff6e
-- paid: 323dc62d045fa70d8729550d6b77ebc4e4f8816c
-- paid: 3299bbfb609bce5f674c13e2c130dac71b73ccef
-- paid: 4c37fbff1ef52d2729ba26857eec6bd8086e4a3b
-- paid: ef5e0d6b2ff9ac060ef1ba7ce27f04396dd60785
-- paid: db214c7406d0d2da752d2080827a9f5b5d64bc59
-- paid: 66584ed78d3b8aef38af16664276d376153fa91e
-- paid: 55c596c2e697a885522a6ad37f99ae39e4bcfd04
-- paid: 177e9cef98ff5bd14687966437773350b472abc5
-- paid: 05c74a21dde2f0b4729ef824238f4c558a7cde81
-- paid: a2c07eacbf31675e9f35cf62d3431be681d950e2
-- paid: fdf88d27785be2a3e5f82903ab2b4aab32a2fc83
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061304100, 1795061304329, 200, '{"status_code":200,"request_id":"req_67837e00000003","body":{"id":"chatcmpl-67837e00000002","object":"chat.completion","created":1795061304,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061306367, 1795061306569, 200, '{"status_code":200,"request_id":"req_67837e00000007","body":{"id":"chatcmpl-67837e00000005","object":"chat.completion","created":1795061306,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061307565, 1795061307574, '{"key":"437fff91fbfdb4464f6fb0a25a097f369de9ff6e"}'),
(1610612736, 1, 1, 'succeeded', 1795061307648, 1795061307652, '{"key":"323dc62d045fa70d8729550d6b77ebc4e4f8816c"}'),
(1610612737, 1, 1, 'succeeded', 1795061307648, 1795061307652, '{"key":"3299bbfb609bce5f674c13e2c130dac71b73ccef"}'),
(1879048192, 1, 1, 'succeeded', 1795061307648, 1795061307652, '{"key":"ef5e0d6b2ff9ac060ef1ba7ce27f04396dd60785"}'),
(2147483648, 1, 1, 'succeeded', 1795061307648, 1795061307652, '{"key":"66584ed78d3b8aef38af16664276d376153fa91e"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061307648, 1795061307652, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061307648, 1795061307652, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061307648, 1795061307652, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_b821e3269d4925e191956c20', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-4f1650ce1638b98426131882', '24h', 'gpt-4o-mini', 1795061304065, 1795147704065, 1795061304078, 5, 1795061304105);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061303922);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061306365, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061306365, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061307593, 'paused'),
(4, 'job:5', 1795061307604, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-4f1650ce1638b98426131882', 'local', 'requests.jsonl', 'batch', 920, 1795061304048, 1797653304048, 'files/9e7012589614ba085536de88', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061304091, 1795061304100, 2, 1, 1, 1795061304091, 1795061304091, 1795061304100, 1795147704068, 31, 16),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061306091, 1795061304333, 2, 1, 1, 1795061304091, 1795061304091, 1795061304333, 1795147704068, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061305091, 1795061304100, 1, 1, 100, 1795061304091, 1795061304091, 1795061304100, 1795061304330, 1795147704068, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061307091, 1795061304091, 1795061304091, 1795147704068, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061308091, 1795061304091, 1795061304091, 1795147704068, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061306321, 1795061306367, 1, 1, 100, 1795061306321, 1795061306321, 1795061306367, 1795061306570, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061307321, '178b057c1a834255:2', 1795061307553, 1795061306367, 1, 1795061306321, 1795061306321, 1795061306367, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061308321, '178b057c1a834255:4', 1795061307553, 1795061306573, 1, 1795061306321, 1795061306321, 1795061306573, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061309321, 1795061306321, 1795061306321, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061310321, 1795061306321, 1795061306321, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061307529, 1795061307565, 1, 1, 100, 1795061307529, 1795061307529, 1795061307565, 1795061307571),
(1610612736, 6, 'call', 'succeeded', 1795050507617, 1795061307648, 1, 1, 100, 1795061307617, 1795061307617, 1795061307648, 1795061307652),
(1610612737, 6, 'call', 'succeeded', 1795050508617, 1795061307648, 1, 1, 100, 1795061307617, 1795061307617, 1795061307648, 1795061307652),
(1879048192, 7, 'look_up', 'succeeded', 1795050507620, 1795061607648, 1, 1, 100, 1795061307620, 1795061307620, 1795061307648, 1795061307652),
(2147483648, 8, 'once', 'succeeded', 1795050507623, 1795061307648, 1, 1, 100, 1795061307623, 1795061307623, 1795061307648, 1795061307652);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061307590, 4503599627370500, 1795061307590, 1795061307590),
(1073741825, 4, 'call', 'queued', 1795061308590, 4503599627370500, 1795061307590, 1795061307590);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061307601, 1, 1795061307601, 1795061307601, 1795061307609);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050509617, 1795061307648, 1, 1, 1795061307617, 1795061307617, 1795061307648, 1795061307652, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050508623, 1795061307648, 1, 1, 1795061307623, 1795061307623, 1795061307648, 1795061307652, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050510617, 1795061313526, 1795061307648, 1, 1, 1795061307617, 1795061307617, 1795061307648, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050511617, '14253afada764f22:1', 1795061397648, 1795061307648, 1, 1795061307617, 1795061307617, 1795061307648),
(1879048193, 7, 'look_up', 'submitting', 1795050508620, '14253afada764f22:1', 1795061397648, 1795061607648, 1, 1795061307620, 1795061307620, 1795061307648),
(1879048194, 7, 'look_up', 'submitting', 1795050509620, '14253afada764f22:3', 1795061397667, 1795061607667, 1, 1795061307620, 1795061307620, 1795061307667),
(2147483650, 8, 'once', 'submitting', 1795050509623, '14253afada764f22:1', 1795061397648, 1795061307648, 1, 1795061307623, 1795061307623, 1795061307648);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050510620, 1795061307620, 1795061307620);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050507629, 1795061312652, 1795061307648, 1, 1795061307629, 1795061307629, 1795061307648, 'task of 05c74a21dde2f0b4729ef824238f4c558a7cde81'),
(2415919105, 9, 'task', 'processing', 1795050508629, 1795061312652, 1795061307648, 1, 1795061307629, 1795061307629, 1795061307648, 'task of a2c07eacbf31675e9f35cf62d3431be681d950e2');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_b821e3269d4925e191956c20', '16a27da540ec4fea', 'batch:batch_b821e3269d4925e191956c20', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 2, 1795061304091, 1795061304100, 2592000000, 1797653304091, 1795147704068, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', 'ae81ca6a29fa427b', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061306321, 1795061306367, 2592000000, 1797653306321, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', 'c556060a9da44b77', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061307529, 1795061307565, 1795061307571, 172800000, 1795234107529);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, 'c8598f0903b34890', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061307590, 1795061307593, 172800000, 1795234107590);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '8cf0a3242d6c42ff', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061307601, 1795061307609, 172800000, 1795234107601);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, '846eb383a6e248ad', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061307617, 1795061307648, 172800000, 1795234107617),
(8, 'local', 'once', 'running', 1, 3, 'b15317f571d1450e', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061307623, 1795061307648, 172800000, 1795234107623);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '615eb0c2ca534d2e', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061307620, 1795061307648, 172800000, 1795234107620);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, 'ccb78046edbd431d', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061307629, 1795061307648, 172800000, 1795234107629);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061307571),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061307609);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061307648,1795061307652,0],[1795061307648,1795061307652,1],[1795061307648,1795061307652,1]]'),
('once', 'closed', 0, '[[1795061307648,1795061307652,0],[1795061307648,1795061307652,1]]');
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
('wh_bac20db515c90a514b08f8b8', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061303995, 1795061303995);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('e2af05369ed5469f', 'vm', 22889, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061303953, 1795061306346, 1795061306346, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('178b057c1a834255', 'vm', 22920, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061306339, 1795061307553, 1795061307553, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('ad4bdbe8eeff4064', 'vm', 22941, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061307550, 1795061307585, 1795061307585, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('14253afada764f22', 'vm', 22941, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061307637, 1795061307637, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
