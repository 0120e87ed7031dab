-- A database of revision 0011 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061364652
-- digest of the revision: 67529a68b9d7137a6b84b0c0c9d061633bf43072ee5353f2b175faf9fbcace9d
-- paid: 30663b30ee95e375e62487d9439ff8e1286eb417
-- paid: f72d2f8cd12c2e9d42261600230084521a0074e5
-- paid: cd287c688c01996dc2f0b8f8945ff664b7042c5b
-- paid: 9d6a79a78e85670cd9be764b24f14677cbd932e1
-- paid: e60771d939c317bab8cc829a9b242ac6c4fcfbfc
-- paid: 2f0b7f34e4a3549a1fe9e0257e25393819264372
-- paid: f14251c8ae4fed82d455d44bb5a25bd5c3073b14
-- paid: cbb97ab742d10d893cb52c6f62b62ca895142c14
-- paid: e926b97d6a0b62278035167b3bf14fbd3d006485
-- paid: 3d5a3329fa989368e0e086d29ef7c06ea329c8ad
-- paid: 2ebb302d3926e12879a4f22934af29f58e4a35de
-- paid: 5cc57da81d5addd6809629e2352939aac60f25a2
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061362714, 1795061362929, 200, '{"status_code":200,"request_id":"req_a064ae00000003","body":{"id":"chatcmpl-a064ae00000002","object":"chat.completion","created":1795061362,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061363831, 1795061364037, 200, '{"status_code":200,"request_id":"req_a064ae00000007","body":{"id":"chatcmpl-a064ae00000005","object":"chat.completion","created":1795061363,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061364623, 1795061364629, '{"key":"30663b30ee95e375e62487d9439ff8e1286eb417"}'),
(1610612736, 1, 1, 'succeeded', 1795061364655, 1795061364657, '{"key":"f72d2f8cd12c2e9d42261600230084521a0074e5"}'),
(1610612737, 1, 1, 'succeeded', 1795061364655, 1795061364657, '{"key":"cd287c688c01996dc2f0b8f8945ff664b7042c5b"}'),
(1879048192, 1, 1, 'succeeded', 1795061364655, 1795061364657, '{"key":"e60771d939c317bab8cc829a9b242ac6c4fcfbfc"}'),
(2147483648, 1, 1, 'succeeded', 1795061364655, 1795061364657, '{"key":"f14251c8ae4fed82d455d44bb5a25bd5c3073b14"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061364655, 1795061364657, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061364655, 1795061364657, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061364655, 1795061364657, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_90b8b5b17e688781de869ab6', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-463774ad9b34c8296ac3f9c2', '24h', 'gpt-4o-mini', 1795061362691, 1795147762691, 1795061362702, 5, 1795061362716);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061412615);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061362624);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061363830, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061363830, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061364641, 'paused'),
(4, 'job:5', 1795061364645, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-463774ad9b34c8296ac3f9c2', 'local', 'requests.jsonl', 'batch', 920, 1795061362679, 1797653362679, 'files/c5160af65235035188ac18f8', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795061362714, 2, 1, 1, 1795061362706, 1795061362706, 1795061362714, 1795147762692, 31, 16, 1),
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061362931, 2, 1, 1, 1795061362706, 1795061362706, 1795061362931, 1795147762692, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795061362714, 1, 1, 100, 1795061362706, 1795061362706, 1795061362714, 1795061362928, 1795147762692, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061362706, 1795061362706, 1795147762692, 31, 16),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061362706, 1795061362706, 1795147762692, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795061363831, 1, 1, 100, 1795061363820, 1795061363820, 1795061363831, 1795061364038, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, '3b95fa6add2e4921:2', 1795061364622, 1795061363831, 1, 1795061363820, 1795061363820, 1795061363831, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334466, '3b95fa6add2e4921:4', 1795061364622, 1795061364041, 1, 1795061363820, 1795061363820, 1795061364041, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061363820, 1795061363820, 31, 16),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061363820, 1795061363820, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795061364623, 1, 1, 100, 1795061364611, 1795061364611, 1795061364623, 1795061364631, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795061364655, 1, 1, 100, 1795061364647, 1795061364647, 1795061364655, 1795061364658, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795061364655, 1, 1, 100, 1795061364647, 1795061364647, 1795061364655, 1795061364658, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795061664655, 1, 1, 100, 1795061364647, 1795061364647, 1795061364655, 1795061364658, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795061364655, 1, 1, 100, 1795061364648, 1795061364648, 1795061364655, 1795061364658, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795061364640, 1795061364640),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795061364640, 1795061364640);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795061364645, 1795061364645, 1795061364646);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795061364655, 1, 1, 1795061364647, 1795061364647, 1795061364655, 1795061364658, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795061373542, 1795061364655, 1, 1, 1795061364647, 1795061364647, 1795061364655, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, '8e5c4896c15e41fb:1', 1795061454655, 1795061364655, 1, 1795061364647, 1795061364647, 1795061364655),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, '8e5c4896c15e41fb:1', 1795061454655, 1795061664655, 1, 1795061364647, 1795061364647, 1795061364655),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, '8e5c4896c15e41fb:3', 1795061454659, 1795061664659, 1, 1795061364647, 1795061364647, 1795061364659),
(2147483650, 8, 'once', 'submitting', 27021597764222978, '8e5c4896c15e41fb:1', 1795061454655, 1795061364655, 1, 1795061364648, 1795061364648, 1795061364655);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795061364647, 1795061364647);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795061364655, 1, 1, 1795061364648, 1795061364648, 1795061364655, 1795061364658, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795061369658, 1795061364655, 1, 1795061364648, 1795061364648, 1795061364655, 'task of 3d5a3329fa989368e0e086d29ef7c06ea329c8ad', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795061369658, 1795061364655, 1, 1795061364648, 1795061364648, 1795061364655, 'task of 2ebb302d3926e12879a4f22934af29f58e4a35de', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_90b8b5b17e688781de869ab6', 'd46b7021db1c4e50', 'batch:batch_90b8b5b17e688781de869ab6', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 2, 1795061362706, 1795061362714, 1209600000, 1796270962706, 1795147762692, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', '1ecda37828eb4ed6', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061363820, 1795061363831, 1209600000, 1796270963820, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', 'd590bf8fb9aa436f', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061364611, 1795061364623, 1795061364631, 172800000, 1795234164611, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '4919bcd960234935', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061364640, 1795061364641, 172800000, 1795234164640, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '62dcb7b39dde4fae', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061364645, 1795061364646, 172800000, 1795234164645, 40532396646334464, 40532396646334464, 40532396646334465, 1795061364645);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, '3877219e21404ee1', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061364647, 1795061364655, 172800000, 1795234164647, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, '396cbbba971b47f8', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061364648, 1795061364655, 172800000, 1795234164648, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '8d7333fda49640fb', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061364647, 1795061364655, 172800000, 1795234164647, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, '2a2c406964534697', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061364648, 1795061364655, 172800000, 1795234164648, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', '7018952628694165', 'call', 1, 1, 6, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061364631),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061364646);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061364655,1795061364657,0],[1795061364655,1795061364657,1],[1795061364655,1795061364657,1]]'),
('once', 'closed', 0, '[[1795061364655,1795061364657,0],[1795061364655,1795061364657,1]]');
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
('wh_3951d967fb2cc839a129ecac', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061362665, 1795061362665);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('7cbd898f13b24d18', 'vm', 24148, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061362626, 1795061363827, 1795061363827, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('3b95fa6add2e4921', 'vm', 24242, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061363825, 1795061364622, 1795061364622, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('7018952628694165', 'vm', 24278, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061364620, 1795061364637, 1795061364637, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('8e5c4896c15e41fb', 'vm', 24278, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061364652, 1795061364652, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
