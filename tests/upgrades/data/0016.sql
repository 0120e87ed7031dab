-- A database of revision 0016 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795059646492
-- digest of the revision: 977512911d1587f470ddf4a22dc9ea7bc9e9492e2540e248e4c3b9f9fd48879d
-- paid: 7d5c0a69163be54296b9c49b804cf3a13274606b
-- paid: c16a3f10053cf0a47d5aa154b630bc6d6f855f5b
-- paid: ae9f34de8e103867c5e16d7d85f2c00ea908f594
-- paid: b27608f05e9739cf20360b4b8bbfb44c4c88e390
-- paid: a69b896429cba385ffa9d040b1f7d945e3c9ddb2
-- paid: 84085af0e4005ed1a15f6e7ac8cc5931bafbf030
-- paid: e2bedd53c7ee3b82a366694807b32fefc88b0077
-- paid: cdda9070e0da604662c790e51f418fbe891ae9ba
-- paid: 8e76601997ff75e46e1b935277959bc296b36508
-- paid: 4c95707b4c710e4253a3353c634c463bde10c8e2
-- paid: a4ee960043a4b77c701dff3255b6dd7cb0a179ae
-- paid: a3f5d882248c63f512cea5998cc20801b9ed7943
-- paid: 83f1943e9f1649113bdd028504c3090ae072b00a
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "provider_status", "result", "input_tokens", "output_tokens", "cost_micros") VALUES
(268435457, 1, 1, 'succeeded', 1795059641366, 1795059641578, 200, '{"status_code":200,"request_id":"req_e3766900000003","body":{"id":"chatcmpl-e3766900000002","object":"chat.completion","created":1795061398,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice 582e7f7233fa5b1e","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6),
(536870912, 1, 1, 'succeeded', 1795059642902, 1795059643118, 200, '{"status_code":200,"request_id":"req_e3766900000007","body":{"id":"chatcmpl-e3766900000005","object":"chat.completion","created":1795061399,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"practice e30d97ae8f9a24c6","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},"service_tier":"default","system_fingerprint":"fp_practice"}}', 11, 7, 6);
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(805306368, 1, 1, 'succeeded', 1795059646453, 1795059646462, '{"key":"7d5c0a69163be54296b9c49b804cf3a13274606b"}'),
(1610612736, 1, 1, 'succeeded', 1795059646499, 1795059646501, '{"key":"c16a3f10053cf0a47d5aa154b630bc6d6f855f5b"}'),
(1610612737, 1, 1, 'succeeded', 1795059646499, 1795059646501, '{"key":"ae9f34de8e103867c5e16d7d85f2c00ea908f594"}'),
(1879048192, 1, 1, 'succeeded', 1795059646499, 1795059646501, '{"key":"a69b896429cba385ffa9d040b1f7d945e3c9ddb2"}'),
(2147483648, 1, 1, 'succeeded', 1795059646499, 1795059646501, '{"key":"e2bedd53c7ee3b82a366694807b32fefc88b0077"}'),
(2952790016, 1, 1, 'succeeded', 1795059646499, 1795059646501, '{"key":"a3f5d882248c63f512cea5998cc20801b9ed7943"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1610612738, 1, 1, 'failed', 1795059646499, 1795059646501, 'UNKNOWN', 'the request is wrong'),
(1610612739, 1, 1, 'retry', 1795059646499, 1795059646501, 'GW_5XX', 'the provider answered 503'),
(2147483649, 1, 1, 'failed', 1795059646499, 1795059646501, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO batches ("id", "owner", "job_id", "status", "endpoint", "input_file_id", "completion_window", "model", "created_at", "expires_at", "in_progress_at", "requests", "leased_until") VALUES
('batch_5ba40b5d3eca03927603e610', 'local', 1, 'in_progress', '/v1/chat/completions', 'file-ec19064e5a3d68f60015ae20', '24h', 'gpt-4o-mini', 1795059641357, 1795146041357, 1795059641362, 5, 1795059641369);
INSERT INTO budgets ("id", "owner", "handler", "period", "limit_micros", "reserved_micros") VALUES
(1, '', '', 'total', 50000000, 62);
INSERT INTO duties ("name", "until_at") VALUES
('alarms', 1795059691306);
INSERT INTO endpoints ("name", "spec", "created_at") VALUES
('call@localhost:39088#1af6eb98', '{"base_url": "http://localhost:39088/v1", "headers_env": [], "key_env": "OPENAI_API_KEY", "lane": "call", "price": [150000, 600000], "reconcilable": false, "timeout_seconds": null}', 1795059641313);
INSERT INTO events ("id", "subject", "at", "act", "detail") VALUES
(1, 'item:268435456', 1795059642917, 'repeat', 'the worker was lost during the call; it is sent again');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(2, 'job:4', 1795059646482, 'paused'),
(3, 'job:5', 1795059646483, 'cancel_asked');
INSERT INTO files ("id", "owner", "filename", "purpose", "bytes", "created_at", "expires_at", "blob", "survey") VALUES
('file-ec19064e5a3d68f60015ae20', 'local', 'requests.jsonl', 'batch', 920, 1795059641352, 1797651641352, 'files/ad3897a565d577fe4d9d1558', '{"requests": 5, "digest": "36d8ab9cfa872c5e9bfa04ae6e69eb77897bd9120222f774a1d9457400095054", "urls": {"/v1/chat/completions": [5, [1, 2, 3, 4, 5]]}, "models": {"gpt-4o-mini": 1}, "faults": [], "fault_count": 0}');
INSERT INTO item_keys ("owner", "handler", "key", "item_id") VALUES
('local', 'call', 'answer', 2952790016);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "rescues", "repeats", "created_at", "queued_at", "last_attempt_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435456, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334464, 1795059641366, 2, 1, 1, 1795059641364, 1795059641364, 1795059641366, 1795146041359, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "deadline_at", "cost_micros", "tokens", "calls") VALUES
(268435457, 1, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334465, 1795059641366, 1, 1, 100, 1795059641364, 1795059641364, 1795059641366, 1795059641578, 1795146041359, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "deadline_at", "cost_micros", "tokens") VALUES
(268435458, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334466, 1795059641364, 1795059641364, 1795146041359, 31, 16),
(268435459, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795059641364, 1795059641364, 1795146041359, 31, 16),
(268435460, 1, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795059641364, 1795059641364, 1795146041359, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "cost_micros", "tokens", "calls") VALUES
(536870912, 2, 'call@localhost:39088#1af6eb98', 'succeeded', 40532396646334464, 1795059642902, 1, 1, 100, 1795059642885, 1795059642885, 1795059642902, 1795059643119, 31, 16, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "cost_micros", "tokens", "reserved_micros") VALUES
(536870913, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334465, '05b1fd6a818f4e3b:3', 1795059646453, 1795059642925, 1, 1795059642885, 1795059642885, 1795059642925, 31, 16, 31),
(536870914, 2, 'call@localhost:39088#1af6eb98', 'submitting', 40532396646334466, '05b1fd6a818f4e3b:5', 1795059646453, 1795059643120, 1, 1795059642885, 1795059642885, 1795059643120, 31, 16, 31);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at", "cost_micros", "tokens") VALUES
(536870915, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334467, 1795059642885, 1795059642885, 31, 16),
(536870916, 2, 'call@localhost:39088#1af6eb98', 'queued', 40532396646334468, 1795059642885, 1795059642885, 31, 16);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at", "calls") VALUES
(805306368, 3, 'call', 'succeeded', 40532396646334464, 1795059646453, 1, 1, 100, 1795059646382, 1795059646382, 1795059646453, 1795059646469, 1),
(1610612736, 6, 'call', 'succeeded', 27021597764222976, 1795059646499, 1, 1, 100, 1795059646486, 1795059646486, 1795059646499, 1795059646501, 1),
(1610612737, 6, 'call', 'succeeded', 27021597764222977, 1795059646499, 1, 1, 100, 1795059646486, 1795059646486, 1795059646499, 1795059646501, 1),
(1879048192, 7, 'look_up', 'succeeded', 27021597764222976, 1795059946499, 1, 1, 100, 1795059646487, 1795059646487, 1795059646499, 1795059646501, 1),
(2147483648, 8, 'once', 'succeeded', 27021597764222976, 1795059646499, 1, 1, 100, 1795059646487, 1795059646487, 1795059646499, 1795059646501, 1),
(2952790016, 11, 'call', 'succeeded', 40532396646334464, 1795059646499, 1, 1, 100, 1795059646491, 1795059646491, 1795059646499, 1795059646501, 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(1073741824, 4, 'call', 'queued', 40532396646334464, 4503599627370500, 1795059646482, 1795059646482),
(1073741825, 4, 'call', 'queued', 40532396646334465, 4503599627370500, 1795059646482, 1795059646482);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(1342177280, 5, 'call', 'cancelled', 40532396646334464, 1, 1795059646483, 1795059646483, 1795059646484);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "calls") VALUES
(1610612738, 6, 'call', 'failed', 27021597764222978, 1795059646499, 1, 1, 1795059646486, 1795059646486, 1795059646499, 1795059646501, 'UNKNOWN', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code", "calls") VALUES
(1610612739, 6, 'call', 'queued', 27021597764222979, 1795059651922, 1795059646499, 1, 1, 1795059646486, 1795059646486, 1795059646499, 'GW_5XX', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1610612740, 6, 'call', 'submitting', 27021597764222980, 'fffd65d4c40642fd:1', 1795059736499, 1795059646499, 1, 1795059646486, 1795059646486, 1795059646499),
(1879048193, 7, 'look_up', 'submitting', 27021597764222977, 'fffd65d4c40642fd:1', 1795059736499, 1795059946499, 1, 1795059646487, 1795059646487, 1795059646499),
(1879048194, 7, 'look_up', 'submitting', 27021597764222978, 'fffd65d4c40642fd:3', 1795059736513, 1795059946513, 1, 1795059646487, 1795059646487, 1795059646513),
(2147483650, 8, 'once', 'submitting', 27021597764222978, 'fffd65d4c40642fd:1', 1795059736499, 1795059646499, 1, 1795059646487, 1795059646487, 1795059646499);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1879048195, 7, 'look_up', 'queued', 27021597764222979, 1795059646487, 1795059646487);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code", "flaw", "calls") VALUES
(2147483649, 8, 'once', 'failed', 27021597764222977, 1795059646499, 1, 1, 1795059646487, 1795059646487, 1795059646499, 1795059646501, 'UNKNOWN', 'unknown', 1);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id", "calls") VALUES
(2415919104, 9, 'task', 'processing', 27021597764222976, 1795059651501, 1795059646499, 1, 1795059646489, 1795059646489, 1795059646499, 'task of 4c95707b4c710e4253a3353c634c463bde10c8e2', 1),
(2415919105, 9, 'task', 'processing', 27021597764222977, 1795059651501, 1795059646499, 1, 1795059646489, 1795059646489, 1795059646499, 'task of a4ee960043a4b77c701dff3255b6dd7cb0a179ae', 1);
INSERT INTO job_links ("job_id", "number", "after_id", "takes", "feeds") VALUES
(10, 0, 9, 'succeeded', 1);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "repeats", "created_at", "started_at", "timeout_ms", "timeout_at", "deadline_at", "budget_micros", "spent_micros", "unknown_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(1, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'batch_5ba40b5d3eca03927603e610', 'c756c70f602d43a7', 'batch:batch_5ba40b5d3eca03927603e610', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1, 1795059641364, 1795059641366, 1209600000, 1796269241364, 1795146041359, 1000000, 6, 31, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "budget_micros", "spent_micros", "reserved_micros", "input_tokens", "output_tokens", "level_key", "first_key", "last_key") VALUES
(2, 'local', 'call@localhost:39088#1af6eb98', 'running', 1, 0, 'requests.jsonl', '353f2decba21467a', 'run:4c796d7973606838cd89a25ffdfbaf0bbc96d806:0', '1017291fed0475b13a18449fd03451712c72ae0e55e18346ddce3db5575bc6d4', 5, 1, 1795059642885, 1795059642902, 1209600000, 1796269242885, 1000000, 6, 62, 11, 7, 40532396646334464, 40532396646334464, 40532396646334469);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(3, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '2b88ab5b47b54c65', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795059646382, 1795059646453, 1795059646469, 172800000, 1795232446382, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(4, 'local', 'call', 'paused', 1, 1, 0, '7a9c11e619774a6d', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795059646482, 1795059646482, 172800000, 1795232446482, 40532396646334464, 40532396646334464, 40532396646334466);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "stopped_at") VALUES
(5, 'local', 'call', 'cancelled', 1, 'cancel', 0, '7f4342ccf3de4d43', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795059646483, 1795059646484, 172800000, 1795232446483, 40532396646334464, 40532396646334464, 40532396646334465, 1795059646483);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(6, 'local', 'call', 'running', 1, 3, 'd5cc6699b4174b9c', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795059646486, 1795059646499, 172800000, 1795232446486, 27021597764222976, 27021597764222976, 27021597764222981),
(8, 'local', 'once', 'running', 1, 3, '75332cb2d926437d', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795059646487, 1795059646499, 172800000, 1795232446487, 27021597764222976, 27021597764222976, 27021597764222979);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(7, 'local', 'look_up', 'running', 1, 3, '74317bb7c2fe4405', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795059646487, 1795059646499, 172800000, 1795232446487, 27021597764222976, 27021597764222976, 27021597764222980);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(9, 'local', 'task', 'running', 1, 3, 'dad7982954574308', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795059646489, 1795059646499, 172800000, 1795232446489, 27021597764222976, 27021597764222976, 27021597764222978);
INSERT INTO jobs ("id", "owner", "handler", "state", "priority", "ref_seed", "idempotency_key", "digest", "created_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key", "fallback", "waits_for") VALUES
(10, 'local', 'call', 'queued', 0, 'af03b1541f1643c8', 'unique:9dd8f72ab48f6c6bee21f0b4d2af6c8279a3dfe7', '92907e54d018449ea5d07bfbdde11645bb89d2b55ca46548737d3b658e25a68b', 1795059646490, 172800000, 1795232446490, 40532396646334464, 40532396646334464, 40532396646334464, 'look_up', '["9"]');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at", "level_key", "first_key", "last_key") VALUES
(11, 'local', 'call', 'completed', 1, 0, '2a495e3d63624059', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795059646491, 1795059646499, 1795059646501, 172800000, 1795232446491, 40532396646334464, 40532396646334464, 40532396646334465);
INSERT INTO measures ("owner", "minute", "handler", "worker", "provider", "succeeded", "calls", "latency_ms", "within_tenth") VALUES
('local', 29917690, 'call', 'cf27f2d40e2c41ce', 'call', 1, 1, 9, 1);
INSERT INTO outbox ("id", "owner", "aggregate_type", "aggregate_id", "message_type", "payload", "created_at") VALUES
(1, 'local', 'job', '3', 'job.completed', '{}', 1795059646469),
(2, 'local', 'job', '5', 'job.cancelled', '{}', 1795059646484),
(3, 'local', 'job', '11', 'job.completed', '{}', 1795059646501);
INSERT INTO paces ("provider", "concurrency", "ceiling") VALUES
('localhost:39088#a07b9178', 2, 2);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795059646499,1795059646501,0],[1795059646499,1795059646501,1],[1795059646499,1795059646501,1],[1795059646499,1795059646501,1]]'),
('once', 'closed', 0, '[[1795059646499,1795059646501,0],[1795059646499,1795059646501,1]]');
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
('local', 'yearly', 'call', '0 0 1 1 *', 'UTC', '{"do":"answer"}', 'once', 1798759843204, 1798759843204, 1795059644906);
INSERT INTO turns ("handler", "level_key", "served_key") VALUES
('call', 40532396646334464, 40532396646334464);
INSERT INTO webhooks ("id", "owner", "url", "events", "created_at", "updated_at") VALUES
('wh_4d4b09e710f7ec8415565078', 'local', 'http://receiver.place/hook', '["job.completed", "batch.completed"]', 1795059641328, 1795059641328);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at", "place") VALUES
('41f5eb93e6584650', 'vm', 25274, '{"remote": "remote", "call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795059641316, 1795059642902, 1795059642902, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('05b1fd6a818f4e3b', 'vm', 25318, '{"call@localhost:39088#1af6eb98": "localhost:39088#a07b9178/140bed"}', 1795059642899, 1795059646453, 1795059646453, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]'),
('cf27f2d40e2c41ce', 'vm', 25425, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795059646448, 1795059646476, 1795059646476, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "place") VALUES
('fffd65d4c40642fd', 'vm', 25425, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795059646492, 1795059646492, 'ac5a09b3-4e5e-4c29-9c91-0cb33be00925/pid:[4026531836]');
