-- A database of revision 0008 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061348951
-- digest of the revision: 87f5cbee8158a9dd4340ab399e2344a0dcf8f326ac5f6c7146a1a49849bd82a1
-- paid: 0e6bfd3460025e0303f45615e62ad7858e71718d
-- paid: e3c7301f43d39e10b69344e22b31306d7171ec9f
-- paid: 2d5c57737ca2655d23a69f2b705ebbff13eea92c
-- paid: 90a7a0a9c7ae455db7b60ae337eaa703ce79919e
-- paid: 8ad6d9f7f623178ff548a00245c65fed9183b614
-- paid: 8f4e18e297753d209d211ef99c574b81360ae95f
-- paid: 45cd8ac500a844c4f47e5999518d30c0075a28a2
-- paid: 5861674db6f9939cc5ef8ece1ac5af2f2de59c21
-- paid: 81515139a607335a9eeed6547ccaff75179d1e21
-- paid: 88b2ca4a9b6ca7708cbbfec8716c01b5115138af
-- paid: be7e124b709eeb10ed98794ebfe2ec5bd6c94351
-- paid: 15ec1c9ce1b46340e26954d08fb502e2abeecc4c
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061346492, 1795061346716, 200, '{"status_code":200,"request_id":"req_9ac71500000003","body":{"id":"chatcmpl-9ac71500000002","object":"chat.completion","created":1795061346,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061348036, 1795061348244, 200, '{"status_code":200,"request_id":"req_9ac71500000007","body":{"id":"chatcmpl-9ac71500000005","object":"chat.completion","created":1795061348,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061348905, 1795061348908, '{"key":"0e6bfd3460025e0303f45615e62ad7858e71718d"}'),
(1610612736, 1, 1, 'succeeded', 1795061348957, 1795061348961, '{"key":"e3c7301f43d39e10b69344e22b31306d7171ec9f"}'),
(1610612737, 1, 1, 'succeeded', 1795061348957, 1795061348961, '{"key":"2d5c57737ca2655d23a69f2b705ebbff13eea92c"}'),
(1879048192, 1, 1, 'succeeded', 1795061348957, 1795061348961, '{"key":"8ad6d9f7f623178ff548a00245c65fed9183b614"}'),
(2147483648, 1, 1, 'succeeded', 1795061348957, 1795061348961, '{"key":"45cd8ac500a844c4f47e5999518d30c0075a28a2"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061348957, 1795061348961, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061348957, 1795061348961, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061348957, 1795061348961, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_4f3ced6714284f3478be0f27', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-887f30633c23bfdba8133813', '24h', 'gpt-4o-mini', 1795061346476, 1795147746476, 1795061346482, 5, 1795061346509);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061396407);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061346438);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061348055, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(2, 'job:4', 1795061348926, 'paused'),
(3, 'job:5', 1795061348931, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-887f30633c23bfdba8133813', 'local', 'requests.jsonl', 'batch', 920, 1795061346471, 1797653346471, 'files/5377bc8bb11905bf8c993bcb', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 1795061346486, 1795061346492, 2, 1, 1, 1795061346486, 1795061346486, 1795061346492, 1795147746477, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 1795061347486, 1795061346492, 1, 1, 100, 1795061346486, 1795061346486, 1795061346492, 1795061346716, 1795147746477, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 1795061348486, 1795061346486, 1795061346486, 1795147746477, 31, 16),
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 1795061349486, 1795061346486, 1795061346486, 1795147746477, 31, 16),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 1795061350486, 1795061346486, 1795061346486, 1795147746477, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 1795061348026, 1795061348036, 1, 1, 100, 1795061348026, 1795061348026, 1795061348036, 1795061348244, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 1795061349026, 'f5131a657893400c:3', 1795061348902, 1795061348067, 1, 1795061348026, 1795061348026, 1795061348067, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 1795061350026, 'f5131a657893400c:5', 1795061348902, 1795061348245, 1, 1795061348026, 1795061348026, 1795061348245, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 1795061351026, 1795061348026, 1795061348026, 31, 16),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 1795061352026, 1795061348026, 1795061348026, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061348885, 1795061348905, 1, 1, 100, 1795061348885, 1795061348885, 1795061348905, 1795061348910),
(1610612736, 6, 'call', 'succeeded', 1795050548941, 1795061348957, 1, 1, 100, 1795061348941, 1795061348941, 1795061348957, 1795061348962),
(1610612737, 6, 'call', 'succeeded', 1795050549941, 1795061348957, 1, 1, 100, 1795061348941, 1795061348941, 1795061348957, 1795061348962),
(1879048192, 7, 'look_up', 'succeeded', 1795050548945, 1795061648957, 1, 1, 100, 1795061348945, 1795061348945, 1795061348957, 1795061348962),
(2147483648, 8, 'once', 'succeeded', 1795050548948, 1795061348957, 1, 1, 100, 1795061348948, 1795061348948, 1795061348957, 1795061348962);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061348926, 4503599627370500, 1795061348926, 1795061348926),
(1073741825, 4, 'call', 'queued', 1795061349926, 4503599627370500, 1795061348926, 1795061348926);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061348929, 1, 1795061348929, 1795061348929, 1795061348932);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050550941, 1795061348957, 1, 1, 1795061348941, 1795061348941, 1795061348957, 1795061348962, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050549948, 1795061348957, 1, 1, 1795061348948, 1795061348948, 1795061348957, 1795061348962, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050551941, 1795061358021, 1795061348957, 1, 1, 1795061348941, 1795061348941, 1795061348957, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050552941, '4c242da366ef478c:1', 1795061438957, 1795061348957, 1, 1795061348941, 1795061348941, 1795061348957),
(1879048193, 7, 'look_up', 'submitting', 1795050549945, '4c242da366ef478c:1', 1795061438957, 1795061648957, 1, 1795061348945, 1795061348945, 1795061348957),
(1879048194, 7, 'look_up', 'submitting', 1795050550945, '4c242da366ef478c:3', 1795061438980, 1795061648980, 1, 1795061348945, 1795061348945, 1795061348980),
(2147483650, 8, 'once', 'submitting', 1795050550948, '4c242da366ef478c:1', 1795061438957, 1795061348957, 1, 1795061348948, 1795061348948, 1795061348957);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050551945, 1795061348945, 1795061348945);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050548948, 1795061353962, 1795061348957, 1, 1795061348948, 1795061348948, 1795061348957, 'task of 88b2ca4a9b6ca7708cbbfec8716c01b5115138af'),
(2415919105, 9, 'task', 'processing', 1795050549948, 1795061353962, 1795061348957, 1, 1795061348948, 1795061348948, 1795061348957, 'task of be7e124b709eeb10ed98794ebfe2ec5bd6c94351');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_4f3ced6714284f3478be0f27', 'af6f9f0976914193', 'batch:batch_4f3ced6714284f3478be0f27', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1, 1795061346486, 1795061346492, 1209600000, 1796270946486, 1795147746477, 1000000, 6, 31, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', '52ca949c436e4d28', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061348026, 1795061348036, 1209600000, 1796270948026, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', 'b7dc16e193e54562', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061348885, 1795061348905, 1795061348910, 172800000, 1795234148885);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '0a02996af65a4a9b', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061348926, 1795061348926, 172800000, 1795234148926);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, 'eabf0999f2bd41ae', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061348929, 1795061348932, 172800000, 1795234148929);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, '0044b0f798e74a45', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061348941, 1795061348957, 172800000, 1795234148941),
(8, 'local', 'once', 'running', 1, 3, '042264d500b64cd6', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061348948, 1795061348957, 172800000, 1795234148948);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '1ef54c599f9b40d2', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061348945, 1795061348957, 172800000, 1795234148945);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, '8be04a76d6b94876', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061348948, 1795061348957, 172800000, 1795234148948);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', '86276de1c27a4089', 'call', 1, 1, 3, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061348910),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061348932);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061348957,1795061348961,0],[1795061348957,1795061348961,1],[1795061348957,1795061348961,1]]'),
('once', 'closed', 0, '[[1795061348957,1795061348961,0],[1795061348957,1795061348961,1]]');
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
('wh_d66812a57104d03e20110466', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061346456, 1795061346456);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('11b3a30fb3c341ab', 'vm', 23311, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178"}', 1795061346440, 1795061348035, 1795061348035, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('f5131a657893400c', 'vm', 23395, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178"}', 1795061348033, 1795061348902, 1795061348902, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('86276de1c27a4089', 'vm', 23436, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061348897, 1795061348923, 1795061348923, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('4c242da366ef478c', 'vm', 23436, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061348951, 1795061348951, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
