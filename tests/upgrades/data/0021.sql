-- A database of revision 0021 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061423681
-- digest of the revision: cabc5a71165291594c9d9ba16e58da1b0a22e7aa156fd5ddfbc6da0439be4e72
-- paid: 4b8af6abb1c143ce67ca4b3348b3b8cbbf8eb93a
-- paid: 5e1064f812453cb354257ce654c368e20c9caa9f
-- paid: 4c9398f603ce79baef738fe4729c6340f5ec7514
-- paid: 9f71c2886b36db6e051769fa0dd8dd94fb0c994f
-- paid: 31d63d9740871788e458246ea283af91f3c8f74a
-- paid: 26a89a73142afb7b454fcf4ba6dbdea5ab2d6fa3
-- paid: 618e2c241bb7868c53dab6a680860261cb509b01
-- paid: 663e69161203dcd3a60442135b5c506fdb8bf184
-- paid: 6dab5f2bbcf4ba8e55077b532803cbccbc76006f
-- paid: 2b52edf209b64ca3f847b7aac6d51924e69c306c
-- paid: 2e2867ee58f265cccff5685b8f69f997f94927fc
-- paid: ba2a695134a72cd9d926db4a05f27c04f618c57f
-- paid: 6891ffd580fdc28ca097645c6ab2c76504dbf994
INSERT INTO answer_keys ("item_id", "key_high", "key_low", "model") VALUES
(536870912, 4698659976447729539, 3619420744693211844, 'gpt-4o-mini'),
(536870913, 7681269890579068712, -6726064790966292962, 'gpt-4o-mini'),
(536870914, -266482864580700161, -9028387638769816377, 'gpt-4o-mini'),
(536870915, 5735281004238513009, -6447694463618785393, 'gpt-4o-mini'),
(536870916, -4000797175948533784, 6023206795890577888, 'gpt-4o-mini');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795061420107, 1795061420321, 200, '{"status_code":200,"request_id":"req_f1957700000003","body":{"id":"chatcmpl-f1957700000002","object":"chat.completion","created":1795061420,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795061421312, 1795061421529, 200, '{"status_code":200,"request_id":"req_f1957700000007","body":{"id":"chatcmpl-f1957700000005","object":"chat.completion","created":1795061421,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795061423610, 1795061423613, '{"key":"4b8af6abb1c143ce67ca4b3348b3b8cbbf8eb93a"}'),
(1610612736, 1, 1, 'succeeded', 1795061423687, 1795061423688, '{"key":"5e1064f812453cb354257ce654c368e20c9caa9f"}'),
(1610612737, 1, 1, 'succeeded', 1795061423687, 1795061423688, '{"key":"4c9398f603ce79baef738fe4729c6340f5ec7514"}'),
(1879048192, 1, 1, 'succeeded', 1795061423687, 1795061423688, '{"key":"31d63d9740871788e458246ea283af91f3c8f74a"}'),
(2147483648, 1, 1, 'succeeded', 1795061423687, 1795061423688, '{"key":"618e2c241bb7868c53dab6a680860261cb509b01"}'),
(2952790016, 1, 1, 'succeeded', 1795061423687, 1795061423688, '{"key":"ba2a695134a72cd9d926db4a05f27c04f618c57f"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795061423687, 1795061423688, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795061423687, 1795061423688, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795061423687, 1795061423688, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_79bc2ee290fce8541c46d088', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-6d0f3f26a6a9b8d54efb54d8', '24h', 'gpt-4o-mini', 1795061420082, 1795147820082, 1795061420095, 5, 1795061420111);
INSERT INTO budgets ("id", "owner", "handler", "period", "limit_micros", "reserved_micros") VALUES
(1, '', '', 'total', 50000000, 62);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795061469964);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795061419986);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795061421319, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(2, 'job:4', 1795061423639, 'paused'),
(3, 'job:5', 1795061423641, 'cancel_asked');
INSERT INTO failure_notices ("id", "item_id", "fence", "job_id", "handler", "attempt_count", "calls", "error_code", "failed_at") VALUES
(1, 1610612738, 1, 6, 'call', 1, 1, 'UNKNOWN', 1795061423689);
INSERT INTO failure_notices ("id", "item_id", "fence", "job_id", "handler", "attempt_count", "calls", "error_code", "flaw", "failed_at") VALUES
(2, 2147483649, 1, 8, 'once', 1, 1, 'UNKNOWN', 'unknown', 1795061423689);
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-6d0f3f26a6a9b8d54efb54d8', 'local', 'requests.jsonl', 'batch', 920, 1795061420065, 1797653420065, 'files/2b52998606d58a62203953e3', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO item_keys ("owner", "handler", "key", "item_id") VALUES
('local', 'call', 'answer', 2952790016);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls", "output_tokens") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795061420107, 2, 1, 1, 1795061420105, 1795061420105, 1795061420107, 1795147820091, 31, 16, 1, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls", "output_tokens") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795061420107, 1, 1, 100, 1795061420105, 1795061420105, 1795061420107, 1795061420322, 1795147820091, 31, 16, 1, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens", "output_tokens") VALUES
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795061420105, 1795061420105, 1795147820091, 31, 16, 9),
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061420105, 1795061420105, 1795147820091, 31, 16, 9),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061420105, 1795061420105, 1795147820091, 31, 16, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls", "output_tokens") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795061421312, 1, 1, 100, 1795061421296, 1795061421296, 1795061421312, 1795061421529, 31, 16, 1, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros", "output_tokens") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, '99bbb303b4314254:3', 1795061423610, 1795061421325, 1, 1795061421296, 1795061421296, 1795061421325, 31, 16, 31, 9),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334466, '99bbb303b4314254:4', 1795061423610, 1795061421533, 1, 1795061421296, 1795061421296, 1795061421533, 31, 16, 31, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens", "output_tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795061421296, 1795061421296, 31, 16, 9),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795061421296, 1795061421296, 31, 16, 9);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795061423610, 1, 1, 100, 1795061423571, 1795061423571, 1795061423610, 1795061423615, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795061423687, 1, 1, 100, 1795061423654, 1795061423654, 1795061423687, 1795061423689, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795061423687, 1, 1, 100, 1795061423654, 1795061423654, 1795061423687, 1795061423689, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795061723687, 1, 1, 100, 1795061423661, 1795061423661, 1795061423687, 1795061423689, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795061423687, 1, 1, 100, 1795061423665, 1795061423665, 1795061423687, 1795061423689, 1),
(2952790016, 11, 'call', 'succeeded', 40532396646334464, 1795061423687, 1, 1, 100, 1795061423677, 1795061423677, 1795061423687, 1795061423689, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795061423638, 1795061423638),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795061423638, 1795061423638);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795061423641, 1795061423641, 1795061423649);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795061423687, 1, 1, 1795061423654, 1795061423654, 1795061423687, 1795061423689, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795061431487, 1795061423687, 1, 1, 1795061423654, 1795061423654, 1795061423687, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, '486c9fc8a7984fa2:1', 1795061513687, 1795061423687, 1, 1795061423654, 1795061423654, 1795061423687),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, '486c9fc8a7984fa2:1', 1795061513687, 1795061723687, 1, 1795061423661, 1795061423661, 1795061423687),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, '486c9fc8a7984fa2:3', 1795061513690, 1795061723690, 1, 1795061423661, 1795061423661, 1795061423690),
(2147483650, 8, 'once', 'submitting', 27021597764222978, '486c9fc8a7984fa2:1', 1795061513687, 1795061423687, 1, 1795061423665, 1795061423665, 1795061423687);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795061423661, 1795061423661);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795061423687, 1, 1, 1795061423665, 1795061423665, 1795061423687, 1795061423689, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795061428689, 1795061423687, 1, 1795061423669, 1795061423669, 1795061423687, 'task of 2b52edf209b64ca3f847b7aac6d51924e69c306c', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795061428689, 1795061423687, 1, 1795061423669, 1795061423669, 1795061423687, 'task of 2e2867ee58f265cccff5685b8f69f997f94927fc', 1);
INSERT INTO job_links ("job_id", "number", "after_id", "takes", "feeds") VALUES
(10, 0, 9, 'succeeded', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_79bc2ee290fce8541c46d088', 'df42ae99ac1d437a', 'batch:batch_79bc2ee290fce8541c46d088', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1, 1795061420105, 1795061420107, 1209600000, 1796271020105, 1795147820091, 1000000, 6, 31, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', '00cd85f8d63f48bb', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795061421296, 1795061421312, 1209600000, 1796271021296, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', 'ecd46e43fbec4167', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061423571, 1795061423610, 1795061423615, 172800000, 1795234223571, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, 'c8b92a625e6a403f', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061423638, 1795061423639, 172800000, 1795234223638, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '62fcbf60381c4766', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061423641, 1795061423649, 172800000, 1795234223641, 40532396646334464, 40532396646334464, 40532396646334465, 1795061423641);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, '766d7ee1837e49b7', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061423654, 1795061423687, 172800000, 1795234223654, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, '3e0fd534ec7c48d8', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061423665, 1795061423687, 172800000, 1795234223665, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '16268ce42c094eb6', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061423661, 1795061423687, 172800000, 1795234223661, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, '6f7c80ec4b5344b8', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061423669, 1795061423687, 172800000, 1795234223669, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO jobs ("id", "owner", "handler", "state", "priority", "ref_seed", "idempotency_key", "digest", "created_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "fallback", "waits_for") VALUES
(10, 'local', 'call', 'queued', 0, 'b94c70629e364ded', 'unique:9dd8f72ab48f6c6bee21f0b4d2af6c8279a3dfe7', '92907e54d018449ea5d07bfbdde11645bb89d2b55ca46548737d3b658e25a68b', 1795061423669, 172800000, 1795234223669, 40532396646334464, 40532396646334464, 40532396646334464, 'look_up', '["9"]');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(11, 'local', 'call', 'completed', 1, 0, '23a59cc8ec9845e2', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061423677, 1795061423687, 1795061423689, 172800000, 1795234223677, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917690, 'call', 'f855c8e7ebf34957', 'call', 1, 1, 3, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795061423615),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795061423649),
(3, 'local', 'job', '11', 'job.completed', '{}', 1795061423689);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061423687,1795061423688,0],[1795061423687,1795061423688,1],[1795061423687,1795061423688,1],[1795061423687,1795061423688,1]]'),
('once', 'closed', 0, '[[1795061423687,1795061423688,0],[1795061423687,1795061423688,1]]');
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
(2415919105, '{"do":"answer"}'),
(2952790016, '{"do":"answer"}');
INSERT INTO schedules ("owner", "name", "handler", "cron", "timezone", "payload", "missed", "next_at", "due_at", "created_at") VALUES
('local', 'yearly', 'call', '0 0 1 1 *', 'UTC', '{"do":"answer"}', 'once', 1798761600000, 1798761600000, 1795061422771);
INSERT INTO turns ("handler", "level_key", "served_key") VALUES
('call', 40532396646334464, 40532396646334464);
INSERT INTO webhooks ("id", "owner", "url", "events", "created_at", "updated_at") VALUES
('wh_ffee4996f4feb91c16d10296', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed", "item.failed"]', 1795061420039, 1795061420039);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('28927a735a744cae', 'vm', 25651, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061419995, 1795061421311, 1795061421311, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('99bbb303b4314254', 'vm', 25669, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795061421309, 1795061423610, 1795061423610, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('f855c8e7ebf34957', 'vm', 25802, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061423605, 1795061423633, 1795061423633, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('486c9fc8a7984fa2', 'vm', 25802, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061423681, 1795061423681, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
