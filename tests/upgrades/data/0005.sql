-- A database of revision 0005 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061318300
-- digest of the revision: 523f042f6b068c2c99d8abfb5add8af28ba9c54690b763a9ca9f8ce132687377
-- paid: 86456bdb98bc52dab393c1315862ead60a5eb814
-- paid: e116fc01be97c58be3f37290c758d28905242ec9
-- paid: 7a3d5990133002b93cdbfbe7a2781dd73f233262
-- paid: a234f9167799bcdf128be42662d475631155e1b1
-- paid: 8738248806491b0519056e090999e56bfd1ab0a0
-- paid: 25504f3d90417e5274eb1e8f4497da295adb05d8
-- paid: 0efc33fdfc13204778353c82792e6e7ce1da5772
-- paid: a4c8ff036a67edcff0b3382ee9451b514abc2aa0
-- paid: dcacd8b79a8821cd0eca041b7e063299d7f14a3a
-- paid: 9582b28d886623a9d712bc8ea5e08fdc18d27009
-- paid: 620526fe25dbbbd6935ba2856114464875253720
-- paid: 522485909c0161d168c7f4300b0ac53151dabaa0
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061315919, 1795061316146, 200, '{"status_code":200,"request_id":"req_f7cc8600000003","body":{"id":"chatcmpl-f7cc8600000002","object":"chat.completion","created":1795061315,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061317342, 1795061317546, 200, '{"status_code":200,"request_id":"req_f7cc8600000009","body":{"id":"chatcmpl-f7cc8600000007","object":"chat.completion","created":1795061317,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061318248, 1795061318251, '{"key":"86456bdb98bc52dab393c1315862ead60a5eb814"}'),
(1610612736, 1, 1, 'succeeded', 1795061318307, 1795061318309, '{"key":"e116fc01be97c58be3f37290c758d28905242ec9"}'),
(1610612737, 1, 1, 'succeeded', 1795061318307, 1795061318309, '{"key":"7a3d5990133002b93cdbfbe7a2781dd73f233262"}'),
(1879048192, 1, 1, 'succeeded', 1795061318307, 1795061318309, '{"key":"8738248806491b0519056e090999e56bfd1ab0a0"}'),
(2147483648, 1, 1, 'succeeded', 1795061318307, 1795061318309, '{"key":"0efc33fdfc13204778353c82792e6e7ce1da5772"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061318307, 1795061318309, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061318307, 1795061318309, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061318307, 1795061318310, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_09428bfdb4234fdb056de00e', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-a41ac7d0f6f6a5184e737cfa', '24h', 'gpt-4o-mini', 1795061315896, 1795147715896, 1795061315907, 5, 1795061315927);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061315831);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061317341, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061317341, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061318277, 'paused'),
(4, 'job:5', 1795061318281, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-a41ac7d0f6f6a5184e737cfa', 'local', 'requests.jsonl', 'batch', 920, 1795061315886, 1797653315886, 'files/d5d35883638dab94fbdb8add', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061315913, 1795061315919, 2, 1, 1, 1795061315913, 1795061315913, 1795061315919, 1795147715899, 31, 16),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061317913, 1795061316147, 2, 1, 1, 1795061315913, 1795061315913, 1795061316147, 1795147715899, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061316913, 1795061315919, 1, 1, 100, 1795061315913, 1795061315913, 1795061315919, 1795061316146, 1795147715899, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061318913, 1795061315913, 1795061315913, 1795147715899, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061319913, 1795061315913, 1795061315913, 1795147715899, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(536870912, 2, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061317325, 1795061317342, 1, 1, 100, 1795061317325, 1795061317325, 1795061317342, 1795061317547, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#e012aa2a', 'submitting', 1795061318325, '47fe8e6702e94c80:2', 1795061318246, 1795061317342, 1, 1795061317325, 1795061317325, 1795061317342, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870914, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061319325, 1795061317325, 1795061317325, 31, 16),
(536870915, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061320325, 1795061317325, 1795061317325, 31, 16),
(536870916, 2, 'call@localhost:39088#e012aa2a', 'queued', 1795061321325, 1795061317325, 1795061317325, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(805306368, 3, 'call', 'succeeded', 1795061318198, 1795061318248, 1, 1, 100, 1795061318198, 1795061318198, 1795061318248, 1795061318251),
(1610612736, 6, 'call', 'succeeded', 1795050518285, 1795061318307, 1, 1, 100, 1795061318285, 1795061318285, 1795061318307, 1795061318313),
(1610612737, 6, 'call', 'succeeded', 1795050519285, 1795061318307, 1, 1, 100, 1795061318285, 1795061318285, 1795061318307, 1795061318313),
(1879048192, 7, 'look_up', 'succeeded', 1795050518288, 1795061618307, 1, 1, 100, 1795061318288, 1795061318288, 1795061318307, 1795061318313),
(2147483648, 8, 'once', 'succeeded', 1795050518293, 1795061318307, 1, 1, 100, 1795061318293, 1795061318293, 1795061318307, 1795061318313);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 1795061318274, 4503599627370500, 1795061318274, 1795061318274),
(1073741825, 4, 'call', 'queued', 1795061319274, 4503599627370500, 1795061318274, 1795061318274);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 1795061318278, 1, 1795061318278, 1795061318278, 1795061318283);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1610612738, 6, 'call', 'failed', 1795050520285, 1795061318307, 1, 1, 1795061318285, 1795061318285, 1795061318307, 1795061318313, 'UNKNOWN'),
(2147483649, 8, 'once', 'failed', 1795050519293, 1795061318307, 1, 1, 1795061318293, 1795061318293, 1795061318307, 1795061318313, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1610612739, 6, 'call', 'queued', 1795050521285, 1795061325998, 1795061318307, 1, 1, 1795061318285, 1795061318285, 1795061318307, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 1795050522285, '13db8ee184674660:1', 1795061408307, 1795061318307, 1, 1795061318285, 1795061318285, 1795061318307),
(1879048193, 7, 'look_up', 'submitting', 1795050519288, '13db8ee184674660:1', 1795061408307, 1795061618307, 1, 1795061318288, 1795061318288, 1795061318307),
(1879048194, 7, 'look_up', 'submitting', 1795050520288, '13db8ee184674660:3', 1795061408322, 1795061618322, 1, 1795061318288, 1795061318288, 1795061318322),
(2147483650, 8, 'once', 'submitting', 1795050520293, '13db8ee184674660:1', 1795061408307, 1795061318307, 1, 1795061318293, 1795061318293, 1795061318307);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 1795050521288, 1795061318288, 1795061318288);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2415919104, 9, 'task', 'processing', 1795050518297, 1795061323313, 1795061318307, 1, 1795061318297, 1795061318297, 1795061318307, 'task of 9582b28d886623a9d712bc8ea5e08fdc18d27009'),
(2415919105, 9, 'task', 'processing', 1795050519297, 1795061323313, 1795061318307, 1, 1795061318297, 1795061318297, 1795061318307, 'task of 620526fe25dbbbd6935ba2856114464875253720');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'batch_09428bfdb4234fdb056de00e', '386f554d97a64df4', 'batch:batch_09428bfdb4234fdb056de00e', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 2, 1795061315913, 1795061315919, 2592000000, 1797653315913, 1795147715899, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(2, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, 'requests.jsonl', '4ed3645a605b47e3', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061317325, 1795061317342, 2592000000, 1797653317325, 1000000, 6, 31, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', 'a962baa756cb489e', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061318198, 1795061318248, 1795061318251, 172800000, 1795234118198);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, 'e5727c4509f745f2', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061318274, 1795061318277, 172800000, 1795234118274);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '13cc7ca8550d44b2', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061318278, 1795061318283, 172800000, 1795234118278);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'call', 'running', 1, 3, 'c36d3ca7903e4081', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061318285, 1795061318307, 172800000, 1795234118285),
(8, 'local', 'once', 'running', 1, 3, '552949c138c648d6', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061318293, 1795061318307, 172800000, 1795234118293);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '3ca142aed14a465e', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061318288, 1795061318307, 172800000, 1795234118288);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(9, 'local', 'task', 'running', 1, 3, 'a8622fba620a483d', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061318297, 1795061318307, 172800000, 1795234118297);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917688, 'call', '9bc2c225360443c9', 'call', 1, 1, 3, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061318251),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061318283);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061318307,1795061318309,0],[1795061318307,1795061318309,1],[1795061318307,1795061318309,1]]'),
('once', 'closed', 0, '[[1795061318307,1795061318309,1],[1795061318307,1795061318310,0]]');
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
('wh_f12c3210746c788edbc2634b', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061315866, 1795061315866);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('a51084816dcf4230', 'vm', 23025, '{"remote": "remote", "call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061315844, 1795061317333, 1795061317333, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('47fe8e6702e94c80', 'vm', 23063, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061317329, 1795061318246, 1795061318246, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('9bc2c225360443c9', 'vm', 23082, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061318241, 1795061318269, 1795061318269, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('13db8ee184674660', 'vm', 23082, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061318300, 1795061318300, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
