-- A database of revision 0014 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061391636
-- digest of the revision: bc8be66a7e6dff052c4d9fd45e5d063b6beecbe7e356d5f7019af2634cb08c12
-- paid: daabf2925609989486991bf7d3f6a935b5f80e73
-- paid: 0d364b44c35e6503320e9ba8ee20958ae7297b25
-- paid: 26b7a986c1dfb6beffa2a15a03c5fadf72736880
-- paid: d1207709ed7cdcf4981c189fbc6d04f4964e43a8
-- paid: 66923c17edf55c67888fbd05e27900a13bdf2a28
-- paid: 8a16a73cafa294f7da0ae3c16896c0850e1a98b3
-- paid: 7019dcb0ed68e3fd1142722c429ed00d5a172737
-- paid: c760f2055aba18fe1df70810c008d86dd65f4f32
-- paid: c2b650370b182ded8080c1ee85df3413e6e5ca8e
-- paid: d17eee2d7ee5da816b27dbe481d287b1b9dbc52f
-- paid: 9337a90c71eb26b2c46b2045d46603322dd2a16f
-- paid: ec37a31e0e8f7023271c86f1b05c83b62ef6a782
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061387059, 1795061387273, 200, '{"status_code":200,"request_id":"req_9222db00000003","body":{"id":"chatcmpl-9222db00000002","object":"chat.completion","created":1795061387,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061388616, 1795061388823, 200, '{"status_code":200,"request_id":"req_9222db00000009","body":{"id":"chatcmpl-9222db00000007","object":"chat.completion","created":1795061388,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061391587, 1795061391589, '{"key":"daabf2925609989486991bf7d3f6a935b5f80e73"}'),
(1610612736, 1, 1, 'succeeded', 1795061391642, 1795061391644, '{"key":"0d364b44c35e6503320e9ba8ee20958ae7297b25"}'),
(1610612737, 1, 1, 'succeeded', 1795061391642, 1795061391644, '{"key":"26b7a986c1dfb6beffa2a15a03c5fadf72736880"}'),
(1879048192, 1, 1, 'succeeded', 1795061391642, 1795061391645, '{"key":"66923c17edf55c67888fbd05e27900a13bdf2a28"}'),
(2147483648, 1, 1, 'succeeded', 1795061391642, 1795061391645, '{"key":"7019dcb0ed68e3fd1142722c429ed00d5a172737"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061391642, 1795061391644, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061391642, 1795061391645, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061391642, 1795061391645, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_5f34731ff38899059720b018', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-30c527bf017db3b2ba6e0ccb', '24h', 'gpt-4o-mini', 1795061387045, 1795147787045, 1795061387056, 5, 1795061387063);
INSERT INTO budgets ("id", "owner", "handler", "period", "limit_micros", "reserved_micros") VALUES
(1, '', '', 'total', 50000000, 62);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061436980);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061386995);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061388614, 'repeat', 'the worker was lost during the call; it is sent again'),
(2, 'item:268435458', 1795061388614, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(3, 'job:4', 1795061391607, 'paused'),
(4, 'job:5', 1795061391608, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-30c527bf017db3b2ba6e0ccb', 'local', 'requests.jsonl', 'batch', 920, 1795061387034, 1797653387034, 'files/95c2164642ace658df9ee32b', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795061387059, 2, 1, 1, 1795061387058, 1795061387058, 1795061387059, 1795147787046, 31, 16, 1),
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061387276, 2, 1, 1, 1795061387058, 1795061387058, 1795061387276, 1795147787046, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795061387059, 1, 1, 100, 1795061387058, 1795061387058, 1795061387059, 1795061387274, 1795147787046, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061387058, 1795061387058, 1795147787046, 31, 16),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061387058, 1795061387058, 1795147787046, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795061388616, 1, 1, 100, 1795061388582, 1795061388582, 1795061388616, 1795061388824, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, '4173c6f13ce24441:2', 1795061391587, 1795061388616, 1, 1795061388582, 1795061388582, 1795061388616, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334466, '4173c6f13ce24441:4', 1795061391587, 1795061388826, 1, 1795061388582, 1795061388582, 1795061388826, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061388582, 1795061388582, 31, 16),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061388582, 1795061388582, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795061391587, 1, 1, 100, 1795061391539, 1795061391539, 1795061391587, 1795061391590, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795061391642, 1, 1, 100, 1795061391614, 1795061391614, 1795061391642, 1795061391646, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795061391642, 1, 1, 100, 1795061391614, 1795061391614, 1795061391642, 1795061391646, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795061691642, 1, 1, 100, 1795061391617, 1795061391617, 1795061391642, 1795061391646, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795061391642, 1, 1, 100, 1795061391624, 1795061391624, 1795061391642, 1795061391646, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795061391606, 1795061391606),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795061391606, 1795061391606);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795061391607, 1795061391607, 1795061391609);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795061391642, 1, 1, 1795061391614, 1795061391614, 1795061391642, 1795061391646, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795061400261, 1795061391642, 1, 1, 1795061391614, 1795061391614, 1795061391642, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, '25f3e07d306f49a1:1', 1795061481642, 1795061391642, 1, 1795061391614, 1795061391614, 1795061391642),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, '25f3e07d306f49a1:1', 1795061481642, 1795061691642, 1, 1795061391617, 1795061391617, 1795061391642),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, '25f3e07d306f49a1:3', 1795061481653, 1795061691653, 1, 1795061391617, 1795061391617, 1795061391653),
(2147483650, 8, 'once', 'submitting', 27021597764222978, '25f3e07d306f49a1:1', 1795061481642, 1795061391642, 1, 1795061391624, 1795061391624, 1795061391642);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795061391617, 1795061391617);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795061391642, 1, 1, 1795061391624, 1795061391624, 1795061391642, 1795061391646, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795061396646, 1795061391642, 1, 1795061391629, 1795061391629, 1795061391642, 'task of d17eee2d7ee5da816b27dbe481d287b1b9dbc52f', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795061396646, 1795061391642, 1, 1795061391629, 1795061391629, 1795061391642, 'task of 9337a90c71eb26b2c46b2045d46603322dd2a16f', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_5f34731ff38899059720b018', '6240bf9962c44b25', 'batch:batch_5f34731ff38899059720b018', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 2, 1795061387058, 1795061387059, 1209600000, 1796270987058, 1795147787046, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', 'eac1011f45e04919', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061388582, 1795061388616, 1209600000, 1796270988582, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '18ccc4b24ca74a38', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061391539, 1795061391587, 1795061391590, 172800000, 1795234191539, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '560ab320433a4843', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061391606, 1795061391607, 172800000, 1795234191606, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '85e21192d14944a9', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061391607, 1795061391609, 172800000, 1795234191607, 40532396646334464, 40532396646334464, 40532396646334465, 1795061391608);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, 'a40588997ab74b0f', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061391614, 1795061391642, 172800000, 1795234191614, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, '1a74204413064df7', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061391624, 1795061391642, 172800000, 1795234191624, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, 'f4b4836976bf4bd2', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061391617, 1795061391642, 172800000, 1795234191617, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, '1c584f33afd245f0', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061391629, 1795061391642, 172800000, 1795234191629, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917689, 'call', 'ea22e0357b4a4c69', 'call', 1, 1, 2, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061391590),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061391609);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061391642,1795061391644,1],[1795061391642,1795061391644,1],[1795061391642,1795061391645,0]]'),
('once', 'closed', 0, '[[1795061391642,1795061391645,0],[1795061391642,1795061391645,1]]');
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
INSERT INTO schedules ("owner", "name", "handler", "cron", "timezone", "payload", "missed", "next_at", "due_at", "created_at") VALUES
('local', 'yearly', 'call', '0 0 1 1 *', 'UTC', '{"do":"answer"}', 'once', 1798761600000, 1798761600000, 1795061390746);
INSERT INTO turns ("handler", "level_key", "served_key") VALUES
('call', 40532396646334464, 40532396646334464);
INSERT INTO webhooks ("id", "owner", "url", "events", "created_at", "updated_at") VALUES
('wh_4d8529c59b2f394f97201744', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795061387018, 1795061387018);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('6f9707b205434a61', 'vm', 24837, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061386997, 1795061388604, 1795061388604, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('4173c6f13ce24441', 'vm', 25049, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061388594, 1795061391587, 1795061391587, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('ea22e0357b4a4c69', 'vm', 25208, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061391584, 1795061391594, 1795061391594, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('25f3e07d306f49a1', 'vm', 25208, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061391636, 1795061391636, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
