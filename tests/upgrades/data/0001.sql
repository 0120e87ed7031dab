-- A database of revision 0001 in the middle of a run. Never edited; see tests/upgrades/freeze.py
-- kept at 1795061270981
-- digest of the revision: 4470788b29e1f50a044ee2ad45843b9e77d61baa626c88f656ecd895f26b0e30
-- paid: 003ab19de21f73a228870f4b3b14f44591a5564a
-- paid: 389b38764a6b4cecc01fb6862d2190902073ffc8
-- paid: 8914960019022ab2a23ed4621a0bebaf75576173
-- paid: 691a01964ecbd88db7a715c7b7a3164c0574e4c5
-- paid: 102ae3b3e148b38da599510c28f1a8c188dc34a8
-- paid: e37ff8a469803308b5be441e563587c4d0810df3
-- paid: 6cf37c442e26508ae5047050e5d8d9e629906042
-- paid: cbde5bfbf2b1e54e6955bf51e6d19196e3e4498c
-- paid: f8bcb01ef895249cb301b6e48c9fad8922b455f9
-- paid: 33f30b5f062ae1a4bf8d14a6bcd9a146b675e2c0
-- paid: cef065abb5d31b632e3fbeb2c626f4015812b68d
-- paid: c4ddf86c0744e679c7d909609a4b361b16435375
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "result") VALUES
(268435456, 1, 1, 'succeeded', 1795061270927, 1795061270930, '{"key":"003ab19de21f73a228870f4b3b14f44591a5564a"}'),
(1073741824, 1, 1, 'succeeded', 1795061270996, 1795061270999, '{"key":"389b38764a6b4cecc01fb6862d2190902073ffc8"}'),
(1073741825, 1, 1, 'succeeded', 1795061270996, 1795061270999, '{"key":"8914960019022ab2a23ed4621a0bebaf75576173"}'),
(1342177280, 1, 1, 'succeeded', 1795061270996, 1795061270999, '{"key":"102ae3b3e148b38da599510c28f1a8c188dc34a8"}'),
(1610612736, 1, 1, 'succeeded', 1795061270996, 1795061270999, '{"key":"6cf37c442e26508ae5047050e5d8d9e629906042"}');
INSERT INTO attempts ("item_id", "fence", "number", "outcome", "started_at", "ended_at", "error_code", "message") VALUES
(1073741826, 1, 1, 'failed', 1795061270996, 1795061270999, 'UNKNOWN', 'the request is wrong'),
(1073741827, 1, 1, 'retry', 1795061270996, 1795061270999, 'GW_5XX', 'the provider answered 503'),
(1610612737, 1, 1, 'failed', 1795061270996, 1795061270999, 'UNKNOWN', 'outcome unknown: the connection broke during the call');
INSERT INTO events ("id", "subject", "at", "act") VALUES
(1, 'job:2', 1795061270948, 'paused'),
(2, 'job:3', 1795061270953, 'cancel_asked');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "progress", "created_at", "queued_at", "last_attempt_at", "finished_at") VALUES
(268435456, 1, 'call', 'succeeded', 1795061270910, 1795061270927, 1, 1, 100, 1795061270910, 1795061270910, 1795061270927, 1795061270931),
(1073741824, 4, 'call', 'succeeded', 1795050470961, 1795061270996, 1, 1, 100, 1795061270961, 1795061270961, 1795061270996, 1795061271000),
(1073741825, 4, 'call', 'succeeded', 1795050471961, 1795061270996, 1, 1, 100, 1795061270961, 1795061270961, 1795061270996, 1795061271000),
(1342177280, 5, 'look_up', 'succeeded', 1795050470967, 1795061570996, 1, 1, 100, 1795061270967, 1795061270967, 1795061270996, 1795061271000),
(1610612736, 6, 'once', 'succeeded', 1795050470968, 1795061270996, 1, 1, 100, 1795061270968, 1795061270968, 1795061270996, 1795061271000);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "created_at", "queued_at") VALUES
(536870912, 2, 'call', 'queued', 1795061270944, 4503599627370498, 1795061270944, 1795061270944),
(536870913, 2, 'call', 'queued', 1795061271944, 4503599627370498, 1795061270944, 1795061270944);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "fence", "created_at", "queued_at", "finished_at") VALUES
(805306368, 3, 'call', 'cancelled', 1795061270950, 1, 1795061270950, 1795061270950, 1795061270957);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "finished_at", "error_code") VALUES
(1073741826, 4, 'call', 'failed', 1795050472961, 1795061270996, 1, 1, 1795061270961, 1795061270961, 1795061270996, 1795061271000, 'UNKNOWN'),
(1610612737, 6, 'once', 'failed', 1795050471968, 1795061270996, 1, 1, 1795061270968, 1795061270968, 1795061270996, 1795061271000, 'UNKNOWN');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "attempt_count", "created_at", "queued_at", "last_attempt_at", "error_code") VALUES
(1073741827, 4, 'call', 'queued', 1795050473961, 1795061277740, 1795061270996, 1, 1, 1795061270961, 1795061270961, 1795061270996, 'GW_5XX');
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "leased_by", "lease_expires_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at") VALUES
(1073741828, 4, 'call', 'submitting', 1795050474961, '7d3c27f29f40420d:1', 1795061360996, 1795061270996, 1, 1795061270961, 1795061270961, 1795061270996),
(1342177281, 5, 'look_up', 'submitting', 1795050471967, '7d3c27f29f40420d:1', 1795061360996, 1795061570996, 1, 1795061270967, 1795061270967, 1795061270996),
(1342177282, 5, 'look_up', 'submitting', 1795050472967, '7d3c27f29f40420d:3', 1795061361021, 1795061571021, 1, 1795061270967, 1795061270967, 1795061271021),
(1610612738, 6, 'once', 'submitting', 1795050472968, '7d3c27f29f40420d:1', 1795061360996, 1795061270996, 1, 1795061270968, 1795061270968, 1795061270996);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "created_at", "queued_at") VALUES
(1342177283, 5, 'look_up', 'queued', 1795050473967, 1795061270967, 1795061270967);
INSERT INTO items ("id", "job_id", "handler", "state", "order_key", "due_at", "reconcile_after", "fence", "created_at", "queued_at", "last_attempt_at", "provider_task_id") VALUES
(1879048192, 7, 'task', 'processing', 1795050470973, 1795061276000, 1795061270996, 1, 1795061270973, 1795061270973, 1795061270996, 'task of 33f30b5f062ae1a4bf8d14a6bcd9a146b675e2c0'),
(1879048193, 7, 'task', 'processing', 1795050471973, 1795061276000, 1795061270996, 1, 1795061270973, 1795061270973, 1795061270996, 'task of cef065abb5d31b632e3fbeb2c626f4015812b68d');
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "label", "ref_seed", "idempotency_key", "digest", "total", "succeeded", "created_at", "started_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(1, 'local', 'call', 'completed', 1, 0, 'Grüße; ''eins''', '151795cf38b34ad9', 'the first', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061270910, 1795061270927, 1795061270931, 172800000, 1795234070910);
INSERT INTO jobs ("id", "owner", "handler", "state", "held", "sealed", "priority", "ref_seed", "digest", "total", "created_at", "paused_at", "timeout_ms", "timeout_at") VALUES
(2, 'local', 'call', 'paused', 1, 1, 0, 'd4ac37cd9756493a', '34b1e4aebc5104b34603a2527e27ad7801ec17d2ef65ea4c6bdd5588c31f563b', 2, 1795061270944, 1795061270948, 172800000, 1795234070944);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "stop_reason", "priority", "ref_seed", "digest", "total", "cancelled", "created_at", "finished_at", "timeout_ms", "timeout_at") VALUES
(3, 'local', 'call', 'cancelled', 1, 'cancel', 0, '5c1eb5a0a5254987', '54d8758a5f30dd3f24ec365d96b05b75c6f0f0d486e65ddc5d6471fc1dbb96a8', 1, 1, 1795061270950, 1795061270957, 172800000, 1795234070950);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "failed", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(4, 'local', 'call', 'running', 1, 3, 'd8a1e967c98a45d7', '63b9f92d7f3d18a059736e231e8ec4e4b4f5895635b8f96d6b968de1a11eb6dd', 5, 2, 1, 1795061270961, 1795061270996, 172800000, 1795234070961),
(6, 'local', 'once', 'running', 1, 3, '3f005c6cf5c94a8f', '0a3dc749c456a03374a4a94a86e01087bb912d9db782d8edb19ea8988f8034c5', 3, 1, 1, 1795061270968, 1795061270996, 172800000, 1795234070968);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "succeeded", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(5, 'local', 'look_up', 'running', 1, 3, '18008d5ce90740b3', 'b97ae80c7c09e05be0cac4e14079c61706d00e8f02659ce3b208713342cc4f7d', 4, 1, 1795061270967, 1795061270996, 172800000, 1795234070967);
INSERT INTO jobs ("id", "owner", "handler", "state", "sealed", "priority", "ref_seed", "digest", "total", "processing", "created_at", "started_at", "timeout_ms", "timeout_at") VALUES
(7, 'local', 'task', 'running', 1, 3, 'b796fe3777ea48e4', 'ac410c7c7e18459af8f25386b3ae98f7b6c402be7d06b15fdd1b7918bea755e1', 2, 2, 1795061270973, 1795061270996, 172800000, 1795234070973);
INSERT INTO providers ("name", "state", "since_at", "calls") VALUES
('call', 'closed', 0, '[[1795061270996,1795061270999,0],[1795061270996,1795061270999,1],[1795061270996,1795061270999,1]]'),
('once', 'closed', 0, '[[1795061270996,1795061270999,0],[1795061270996,1795061270999,1]]');
INSERT INTO requests ("item_id", "body") VALUES
(268435456, '{"do":"answer"}'),
(536870912, '{"do":"answer"}'),
(536870913, '{"do":"answer"}'),
(805306368, '{"do":"answer"}'),
(1073741824, '{"do":"answer"}'),
(1073741825, '{"do":"answer"}'),
(1073741826, '{"do":"refuse"}'),
(1073741827, '{"do":"retry"}'),
(1073741828, '{"do":"hang"}'),
(1342177280, '{"do":"answer"}'),
(1342177281, '{"do":"hang"}'),
(1342177282, '{"do":"hang"}'),
(1342177283, '{"do":"answer"}'),
(1610612736, '{"do":"answer"}'),
(1610612737, '{"do":"lose"}'),
(1610612738, '{"do":"hang"}'),
(1879048192, '{"do":"answer"}'),
(1879048193, '{"do":"answer"}');
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at", "stopped_at") VALUES
('5fa5bd749b274fbd', 'vm', 22241, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061270918, 1795061270942, 1795061270942);
INSERT INTO workers ("id", "host", "pid", "handlers", "started_at", "seen_at") VALUES
('7d3c27f29f40420d', 'vm', 22241, '{"call": "call", "look_up": "look_up", "once": "once", "task": "task"}', 1795061270981, 1795061270981);
