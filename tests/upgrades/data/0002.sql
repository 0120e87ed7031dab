-- A database of revision 0002 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061282152
-- digest of the revision: ffb950da2a8d49cb05fc59440480b81f33bc17745348701f88069c8b5e77fc8f
-- paid: e6a546849bb7ec0607f85d7517fa7402fdfdf559
-- paid: fb9b02d2cc19f42e94824e0457002b2ed05bb568
-- paid: dd08d08331d08b1ba8a9b25bf78f8c21f8192a32
-- paid: 511598f27c866ff268e0d3bd81720080286bcb7e
-- paid: 61467a1e214e36621a5314c5a869c413765da673
-- paid: 1e47dcd73f0537e2ebf8a5818f6215b2e557e0bd
-- paid: faeb9c8ad14b1efd0296d19e16047fbd171864ec
-- paid: 333496c6d95ebe5a932979d38af7831324d6ca3c
-- paid: b6eb8a586524daa99a56af8e4fcbf4aa53a5a96b
-- paid: 4cd0e882956730b9505bba07bf866174decf6d52
-- paid: a08e8747dc574b4e48ff42e41ab2206f1d2bc5a3
-- paid: 7fb6d913bfa368d9bfd6049c6bd243fc60d60747
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061280173, 1795061280415, 200, '{"status_code":200,"request_id":"req_6f211a00000003","body":{"id":"chatcmpl-6f211a00000001","object":"chat.completion","created":1795061280,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(536870912, 1, 1, 'succeeded', 1795061281903, 1795061282052, '{"key":"e6a546849bb7ec0607f85d7517fa7402fdfdf559"}'),
(1342177280, 1, 1, 'succeeded', 1795061282164, 1795061282165, '{"key":"fb9b02d2cc19f42e94824e0457002b2ed05bb568"}'),
(1342177281, 1, 1, 'succeeded', 1795061282164, 1795061282165, '{"key":"dd08d08331d08b1ba8a9b25bf78f8c21f8192a32"}'),
(1610612736, 1, 1, 'succeeded', 1795061282164, 1795061282165, '{"key":"61467a1e214e36621a5314c5a869c413765da673"}'),
(1879048192, 1, 1, 'succeeded', 1795061282164, 1795061282165, '{"key":"faeb9c8ad14b1efd0296d19e16047fbd171864ec"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1342177282, 1, 1, 'failed', 1795061282164, 1795061282165, 'UNKNOWN', 'the request is wrong'),
(1342177283, 1, 1, 'retry', 1795061282164, 1795061282165, 'GW_5XX', 'the provider answered 503'),
(1879048193, 1, 1, 'failed', 1795061282164, 1795061282165, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#e012aa2a', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": 600.0}', 1795061280165);
INSERT INTO events ("id", "subject", "at", "act") VALUES
(1, 'job:3', 1795061282135, 'paused'),
(2, 'job:4', 1795061282136, 'cancel_asked');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(268435456, 1, 'call@localhost:39088#e012aa2a', 'submitting', 1795061280170, '406ffe66813a46f4:1', 1795061281884, 1795061280173, 1, 1795061280170, 1795061280170, 1795061280173, 31, 16, 31),
(268435458, 1, 'call@localhost:39088#e012aa2a', 'submitting', 1795061282170, '406ffe66813a46f4:2', 1795061281884, 1795061280415, 1, 1795061280170, 1795061280170, 1795061280415, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens") VALUES
(268435457, 1, 'call@localhost:39088#e012aa2a', 'succeeded', 1795061281170, 1795061280173, 1, 1, 100, 1795061280170, 1795061280170, 1795061280173, 1795061280415, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061283170, 1795061280170, 1795061280170, 31, 16),
(268435460, 1, 'call@localhost:39088#e012aa2a', 'queued', 1795061284170, 1795061280170, 1795061280170, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(536870912, 2, 'call', 'succeeded', 1795061281821, 1795061281903, 1, 1, 100, 1795061281821, 1795061281821, 1795061281903, 1795061282034),
(1342177280, 5, 'call', 'succeeded', 1795050482138, 1795061282164, 1, 1, 100, 1795061282138, 1795061282138, 1795061282164, 1795061282165),
(1342177281, 5, 'call', 'succeeded', 1795050483138, 1795061282164, 1, 1, 100, 1795061282138, 1795061282138, 1795061282164, 1795061282165),
(1610612736, 6, 'look_up', 'succeeded', 1795050482138, 1795061582164, 1, 1, 100, 1795061282138, 1795061282138, 1795061282164, 1795061282165),
(1879048192, 7, 'once', 'succeeded', 1795050482139, 1795061282164, 1, 1, 100, 1795061282139, 1795061282139, 1795061282164, 1795061282165);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(805306368, 3, 'call', 'queued', 1795061282134, 4503599627370499, 1795061282134, 1795061282134),
(805306369, 3, 'call', 'queued', 1795061283134, 4503599627370499, 1795061282134, 1795061282134);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1073741824, 4, 'call', 'cancelled', 1795061282136, 1, 1795061282136, 1795061282136, 1795061282137);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1342177282, 5, 'call', 'failed', 1795050484138, 1795061282164, 1, 1, 1795061282138, 1795061282138, 1795061282164, 1795061282165, 'UNKNOWN'),
(1879048193, 7, 'once', 'failed', 1795050483139, 1795061282164, 1, 1, 1795061282139, 1795061282139, 1795061282164, 1795061282165, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1342177283, 5, 'call', 'queued', 1795050485138, 1795061290814, 1795061282164, 1, 1, 1795061282138, 1795061282138, 1795061282164, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1342177284, 5, 'call', 'submitting', 1795050486138, 'ad4b7b23a43a4080:1', 1795061372164, 1795061282164, 1, 1795061282138, 1795061282138, 1795061282164),
(1610612737, 6, 'look_up', 'submitting', 1795050483138, 'ad4b7b23a43a4080:1', 1795061372164, 1795061582164, 1, 1795061282138, 1795061282138, 1795061282164),
(1610612738, 6, 'look_up', 'submitting', 1795050484138, 'ad4b7b23a43a4080:4', 1795061372168, 1795061582168, 1, 1795061282138, 1795061282138, 1795061282168),
(1879048194, 7, 'once', 'submitting', 1795050484139, 'ad4b7b23a43a4080:1', 1795061372164, 1795061282164, 1, 1795061282139, 1795061282139, 1795061282164);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1610612739, 6, 'look_up', 'queued', 1795050485138, 1795061282138, 1795061282138);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(2147483648, 8, 'task', 'processing', 1795050482149, 1795061287165, 1795061282164, 1, 1795061282149, 1795061282149, 1795061282164, 'task of 4cd0e882956730b9505bba07bf866174decf6d52'),
(2147483649, 8, 'task', 'processing', 1795050483149, 1795061287165, 1795061282164, 1, 1795061282149, 1795061282149, 1795061282164, 'task of a08e8747dc574b4e48ff42e41ab2206f1d2bc5a3');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens") VALUES
(1, 'local', 'call@localhost:39088#e012aa2a', 'running', 1, 0, '<path>', 'b0874723fd7a4e03', 'run:38b6a211b5b582cebe74166305f7a900b7010661:0', '8a6e17045a4a598f71dc9c91fd30832d80fbe904c5e96a88cbc1d7c7fb02f165', 5, 1, 1795061280170, 1795061280173, 2592000000, 1797653280170, 1000000, 6, 62, 11, 7);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(2, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', 'fd2ffa192bb04863', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061281821, 1795061281903, 1795061282034, 172800000, 1795234081821);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'paused', 1, 1, 0, 'ae12d6055a2e400e', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061282134, 1795061282135, 172800000, 1795234082134);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'cancelled', 1, 'cancel', 0, '9d0302572cfa43c4', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061282136, 1795061282137, 172800000, 1795234082136);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'call', 'running', 1, 3, 'a07b4cf81d874d43', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061282138, 1795061282164, 172800000, 1795234082138),
(7, 'local', 'once', 'running', 1, 3, '89f9ff1cdfb74d86', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061282139, 1795061282164, 172800000, 1795234082139);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(6, 'local', 'look_up', 'running', 1, 3, 'ec69967c3708425b', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061282138, 1795061282164, 172800000, 1795234082138);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(8, 'local', 'task', 'running', 1, 3, 'e798698015534be8', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061282149, 1795061282164, 172800000, 1795234082149);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061282164,1795061282165,0],[1795061282164,1795061282165,1],[1795061282164,1795061282165,1]]'),
('once', 'closed', 0, '[[1795061282164,1795061282165,0],[1795061282164,1795061282165,1]]');
INSERT INTO requests ("item_id", "body") VALUES
(268435456, '{"custom_id":"r0","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 0"}], "max_tokens": 9}}'),
(268435457, '{"custom_id":"r1","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 1"}], "max_tokens": 9}}'),
(268435458, '{"custom_id":"r2","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 2"}], "max_tokens": 9}}'),
(268435459, '{"custom_id":"r3","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 3"}], "max_tokens": 9}}'),
(268435460, '{"custom_id":"r4","url":"/v1/chat/completions","body":{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Gr\u00fc\u00dfe 4"}], "max_tokens": 9}}'),
(536870912, '{"do":"answer"}'),
(805306368, '{"do":"answer"}'),
(805306369, '{"do":"answer"}'),
(1073741824, '{"do":"answer"}'),
(1342177280, '{"do":"answer"}'),
(1342177281, '{"do":"answer"}'),
(1342177282, '{"do":"refuse"}'),
(1342177283, '{"do":"retry"}'),
(1342177284, '{"do":"hang"}'),
(1610612736, '{"do":"answer"}'),
(1610612737, '{"do":"hang"}'),
(1610612738, '{"do":"hang"}'),
(1610612739, '{"do":"answer"}'),
(1879048192, '{"do":"answer"}'),
(1879048193, '{"do":"lose"}'),
(1879048194, '{"do":"hang"}'),
(2147483648, '{"do":"answer"}'),
(2147483649, '{"do":"answer"}');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('406ffe66813a46f4', 'vm', 22353, '{"call@localhost:39088#e012aa2a": "localhost:39088#a07b9178"}', 1795061280166, 1795061281884, 1795061281884, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('a83e3889c9054bb7', 'vm', 22571, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061281865, 1795061282100, 1795061282100, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('ad4b7b23a43a4080', 'vm', 22571, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061282152, 1795061282152, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
