-- Views of a run store, which define the rows of its tables. The analysis queries these views, and a user who opens the file has the same
-- definitions. The comment above each view has a line for the view and a line for each of its columns. A view joins no more than most of
-- its queries use, because DuckDB executes a join even for a query that uses none of its columns.

-- Events: rows of the schema raw with their process, node and time by source_map, without the rows of left_out. Ids above 2^62 - 1 are
-- not moved: no profiler writes them, and the sum would not fit. views.py derives faster views: a column of a joined table that has one
-- value in the run becomes this value, and then DuckDB folds the expression; so each is named with its alias (m.node), above the joins.

-- device_event: kernel execution, copy, memset or synchronization record of a GPU
-- node: id in table node
-- process: id in table process
-- device: number of the GPU on its node
-- context: context of the driver
-- stream: stream of the context
-- kind: kernel, memcpy, memset or sync
-- name: id in table name
-- start_ns: start; ns
-- duration_ns: duration; ns
-- correlation: links to the launch of the same process; null or 0 if the source has none
-- external_id: links to the operator of the same process
-- bytes: size of a copy or memset; bytes
-- copy_kind: direction of a copy, such as HtoD
-- pageable: whether the host memory of a copy was pageable; null if unknown
-- grid_x: blocks in x
-- grid_y: blocks in y
-- grid_z: blocks in z
-- block_x: threads of a block in x
-- block_y: threads of a block in y
-- block_z: threads of a block in z
-- registers: registers of a thread
-- shared_memory: shared memory of a block; bytes
-- graph_node: node of a CUDA graph
-- occupancy: estimated achieved occupancy, by the profiler; percent
-- multiprocessors: multiprocessors that share the blocks of the grid, by the profiler
-- id: number of the row, in the order of the source; unique in this view
-- source: id in table source
CREATE VIEW device_event AS
SELECT m.node AS node, m.process AS process, coalesce(d.alias, r.device, m.device) AS device, r.context, r.stream, r.kind,
    coalesce(n.alias, r.name) AS name, r.start_ns + m.shift_ns AS start_ns, r.duration_ns,
    CASE WHEN m.id_offset <> 0 AND r.correlation BETWEEN 1 AND 4611686018427387903 THEN r.correlation + m.id_offset
        ELSE r.correlation END AS correlation,
    CASE WHEN m.id_offset <> 0 AND r.external_id BETWEEN 1 AND 4611686018427387903 THEN r.external_id + m.id_offset
        ELSE r.external_id END AS external_id,
    r.bytes, r.copy_kind, r.pageable, r.grid_x, r.grid_y, r.grid_z, r.block_x, r.block_y, r.block_z, r.registers, r.shared_memory,
    r.graph_node, r.occupancy, r.multiprocessors, r.id, m.source AS source
FROM raw.device_event AS r
JOIN source_map AS m ON m.source_id = r.source_id
LEFT JOIN device_alias AS d ON d.source_id = r.source_id AND d.device = r.device
LEFT JOIN name_alias AS n ON n.name = r.name
ANTI JOIN (SELECT id FROM left_out WHERE table_name = 'device_event') AS l ON l.id = r.id;

-- collective: record of a collective with its size: of its kernel, or of the framework's call
-- node: id in table node
-- process: id in table process
-- on_device: true for a record of the kernel, false for a record of the call
-- tid: thread of the call
-- start_ns: start; ns
-- duration_ns: duration; ns
-- correlation: correlation of the kernel
-- external_id: links to the operator of the same process
-- operation: name of the collective, such as allreduce
-- element_type: type of an element
-- in_elements: elements of all input tensors of this rank
-- out_elements: elements of all output tensors of this rank
-- group_name: name of the process group
-- group_ranks: ranks of the group, as JSON text
-- group_size: ranks in the group
-- group_description: purpose of the group, such as PIPELINE_MODEL_PARALLEL_GROUP or mesh_dp
-- peer: rank that a send goes to, or that a receive comes from
-- sequence: number of the collective in the group, counted by the framework
-- id: number of the row, in the order of the source; unique in this view
-- source: id in table source
CREATE VIEW collective AS
SELECT m.node AS node, m.process AS process, r.on_device, coalesce(t.alias, r.tid) AS tid, r.start_ns + m.shift_ns AS start_ns,
    r.duration_ns,
    CASE WHEN m.id_offset <> 0 AND r.correlation BETWEEN 1 AND 4611686018427387903 THEN r.correlation + m.id_offset
        ELSE r.correlation END AS correlation,
    CASE WHEN m.id_offset <> 0 AND r.external_id BETWEEN 1 AND 4611686018427387903 THEN r.external_id + m.id_offset
        ELSE r.external_id END AS external_id,
    r.operation, r.element_type, r.in_elements, r.out_elements, x.text AS group_name, r.group_ranks, r.group_size, r.group_description,
    r.peer, r.sequence, r.id, m.source AS source
FROM raw.collective AS r
JOIN source_map AS m ON m.source_id = r.source_id
LEFT JOIN thread_alias AS t ON t.source_id = r.source_id AND t.tid = r.tid
LEFT JOIN text AS x ON x.id = r.group_name
ANTI JOIN (SELECT id FROM left_out WHERE table_name = 'collective') AS l ON l.id = r.id;

-- allocation: allocation or release of the framework's allocator on a device
-- node: id in table node
-- process: id in table process
-- device: number of the GPU on its node
-- start_ns: time; ns
-- bytes: allocated bytes; negative for a release
-- allocated: allocated after it; bytes
-- reserved: reserved after it; bytes
-- id: number of the row, in the order of the source; unique in this view
-- source: id in table source
CREATE VIEW allocation AS
SELECT m.node AS node, m.process AS process, r.device, r.start_ns + m.shift_ns AS start_ns, r.bytes, r.allocated, r.reserved, r.id,
    m.source AS source
FROM raw.allocation AS r
JOIN source_map AS m ON m.source_id = r.source_id
ANTI JOIN (SELECT id FROM left_out WHERE table_name = 'allocation') AS l ON l.id = r.id;

-- host_event: host call or function
-- node: id in table node
-- process: id in table process
-- tid: thread
-- kind: launch, sync, call, operator, python, loader or overhead
-- name: id in table name
-- start_ns: start; ns
-- duration_ns: duration; ns
-- correlation: links to the device events of the same process; null or 0 if there are none
-- external_id: links to the operator of the same process
-- signature: id in table signature; only for operators
-- sequence: number that an operator shares with the autograd node that differentiates it
-- forward_thread: number of the thread that ran the forward operator, as counted by the framework; only for autograd nodes
-- id: number of the row, in the order of the source; unique in this view
-- source: id in table source
CREATE VIEW host_event AS
SELECT m.node AS node, m.process AS process, coalesce(t.alias, r.tid) AS tid, r.kind, r.name, r.start_ns + m.shift_ns AS start_ns,
    r.duration_ns,
    CASE WHEN m.id_offset <> 0 AND r.correlation BETWEEN 1 AND 4611686018427387903 THEN r.correlation + m.id_offset
        ELSE r.correlation END AS correlation,
    CASE WHEN m.id_offset <> 0 AND r.external_id BETWEEN 1 AND 4611686018427387903 THEN r.external_id + m.id_offset
        ELSE r.external_id END AS external_id,
    r.signature, r.sequence, r.forward_thread, r.id, m.source AS source
FROM raw.host_event AS r
JOIN source_map AS m ON m.source_id = r.source_id
LEFT JOIN thread_alias AS t ON t.source_id = r.source_id AND t.tid = r.tid
ANTI JOIN (SELECT id FROM left_out WHERE table_name = 'host_event') AS l ON l.id = r.id;

-- annotation: begin/end range, on the host or projected onto a stream
-- node: id in table node
-- process: id in table process
-- tid: thread
-- side: host, or device if the profiler projected the range onto a stream
-- device: number of the GPU on its node; only for device ranges
-- stream: stream; only for device ranges
-- name: id in table name
-- value: number in the name or of the step (ProfilerStep#12: 12)
-- start_ns: start; ns
-- duration_ns: duration; ns
-- depth: number of ranges around it on its thread
-- phase: mode, if the source has one (Step:ModeKeys.TRAIN)
-- complete: true if its end was recorded
-- arguments: JSON object with facts that a rule needs (num_workers, pin_memory of a data loader), mostly null
-- id: number of the row, in the order of the source; unique in this view
-- source: id in table source
CREATE VIEW annotation AS
SELECT m.node AS node, m.process AS process, coalesce(t.alias, r.tid) AS tid, r.side, coalesce(d.alias, r.device) AS device, r.stream,
    r.name, r.value,
    r.start_ns + m.shift_ns AS start_ns, r.duration_ns, r.depth, r.phase, r.complete, x.text AS arguments, r.id, m.source AS source
FROM raw.annotation AS r
JOIN source_map AS m ON m.source_id = r.source_id
LEFT JOIN device_alias AS d ON d.source_id = r.source_id AND d.device = r.device
LEFT JOIN thread_alias AS t ON t.source_id = r.source_id AND t.tid = r.tid
LEFT JOIN text AS x ON x.id = r.arguments
ANTI JOIN (SELECT id FROM left_out WHERE table_name = 'annotation') AS l ON l.id = r.id;

-- sample: value of a metric
-- node: id in table node
-- metric: name of the metric
-- unit: number of the core or GPU; null for the complete node. For a counter, the process that recorded it
-- time_ns: time of the measurement; ns
-- value: value, in the unit of the metric
-- id: number of the row, in the order of the source; unique in this view
-- source: id in table source
CREATE VIEW sample AS
SELECT m.node AS node, coalesce(x.text, r.metric) AS metric, r.unit, r.time_ns + m.shift_ns AS time_ns, r.value, r.id, m.source AS source
FROM raw.sample AS r
JOIN source_map AS m ON m.source_id = r.source_id
LEFT JOIN text AS x ON x.id = r.counter
ANTI JOIN (SELECT id FROM left_out WHERE table_name = 'sample') AS l ON l.id = r.id;

-- Events with their names and ends, and the work of launches and steps.

-- annotated: range that the program, its framework or a tool annotated, with its name and its end
-- node: node of the process
-- process: process that annotated it
-- tid: thread
-- side: host, or device if the profiler projected the range onto a stream
-- device: GPU of a range on a device
-- stream: stream of a range on a device
-- name: id of the name
-- text: name as the source has it
-- value: number in the name or of the step
-- start_ns: start; ns
-- duration_ns: duration; ns; null if the range has no end
-- end_ns: end; ns; null if the range has no end
-- depth: number of ranges around it on its thread
-- phase: phase, if the source has one
-- complete: true if its end was recorded
-- arguments: JSON object with other facts
-- id: number of the row in its table
-- source: file of the event
CREATE VIEW annotated AS
SELECT a.node, a.process, a.tid, a.side, a.device, a.stream, a.name, n.text, a.value, a.start_ns, a.duration_ns,
    a.start_ns + a.duration_ns AS end_ns, a.depth, a.phase, a.complete, a.arguments, a.id, a.source
FROM annotation AS a LEFT JOIN name AS n ON n.id = a.name;

-- host_call: call or function of the host, with its name and its end
-- node: node of the process
-- process: process that made the call
-- tid: thread
-- kind: launch, sync, call, operator, python, loader or overhead
-- runtime: true for a call of the GPU runtime or driver (launch, sync or call)
-- name: id of the name
-- text: name as the source has it
-- start_ns: start; ns
-- duration_ns: duration; ns
-- end_ns: end; ns
-- correlation: correlation of the device work that the call launched
-- external_id: external id of the operator
-- id: number of the row in its table
-- source: file of the event
CREATE VIEW host_call AS
SELECT h.node, h.process, h.tid, h.kind, h.kind IN ('launch', 'sync', 'call') AS runtime, h.name, n.text, h.start_ns, h.duration_ns,
    h.start_ns + h.duration_ns AS end_ns, h.correlation, h.external_id, h.id, h.source
FROM host_event AS h LEFT JOIN name AS n ON n.id = h.name;

-- communication_name: name of a kernel of a collective or of a transfer between ranks
-- id: id of the name
CREATE VIEW communication_name AS
SELECT id FROM name WHERE category = 'communication';

-- device_run: execution of a kernel, a copy or a memset on a device
-- node: node of the device
-- process: process that launched it
-- device: number of the GPU on its node
-- context: context on the device
-- stream: stream
-- kind: kernel, memcpy or memset
-- kernel: true for a kernel
-- memcpy: true for a copy
-- memset: true for a memset
-- memory: true for a copy or memset
-- communication: true for a kernel of a collective or of a transfer between ranks
-- computation: true for a kernel that is not communication
-- name: id of the name
-- start_ns: start; ns
-- duration_ns: duration; ns
-- end_ns: end; ns
-- correlation: correlation of its launch in the process
-- external_id: external id of the operator that launched it
-- bytes: size of a copy or memset; bytes
-- copy_kind: direction of a copy
-- pageable: whether the host memory of a copy was pageable; null if unknown
-- grid_x: blocks in x
-- grid_y: blocks in y
-- grid_z: blocks in z
-- block_x: threads of a block in x
-- block_y: threads of a block in y
-- block_z: threads of a block in z
-- registers: registers of a thread
-- shared_memory: shared memory of a block; bytes
-- graph_node: node of its CUDA graph
-- occupancy: estimated achieved occupancy, by the profiler; percent
-- blocks_per_sm: blocks of the grid per multiprocessor, by the profiler
-- id: number of the row in its table
-- source: file of the event
CREATE VIEW device_run AS
SELECT e.node, e.process, e.device, e.context, e.stream, e.kind,
    e.kind = 'kernel' AS kernel, e.kind = 'memcpy' AS memcpy, e.kind = 'memset' AS memset, e.kind IN ('memcpy', 'memset') AS memory,
    e.kind = 'kernel' AND e.communicates AS communication, e.kind = 'kernel' AND NOT e.communicates AS computation,
    e.name, e.start_ns, e.duration_ns, e.start_ns + e.duration_ns AS end_ns, e.correlation, e.external_id, e.bytes, e.copy_kind, e.pageable,
    e.grid_x, e.grid_y, e.grid_z, e.block_x, e.block_y, e.block_z, e.registers, e.shared_memory, e.graph_node,
    e.occupancy, e.grid_x::DOUBLE * e.grid_y * e.grid_z / e.multiprocessors AS blocks_per_sm, e.id, e.source
FROM (
    SELECT *, coalesce(name IN (SELECT id FROM communication_name), false) AS communicates FROM device_event
) AS e
WHERE e.kind <> 'sync';

-- device_work: row of device_run with its names and the facts of its process
-- node: node of the device
-- process: process that launched it
-- device: number of the GPU on its node
-- context: context on the device
-- stream: stream
-- kind: kernel, memcpy or memset
-- kernel: true for a kernel
-- memcpy: true for a copy
-- memset: true for a memset
-- memory: true for a copy or memset
-- communication: true for a kernel of a collective or of a transfer between ranks
-- computation: true for a kernel that is not communication
-- name: id of the name
-- start_ns: start; ns
-- duration_ns: duration; ns
-- end_ns: end; ns
-- correlation: correlation of its launch in the process
-- external_id: external id of the operator that launched it
-- bytes: size of a copy or memset; bytes
-- copy_kind: direction of a copy
-- pageable: whether the host memory of a copy was pageable; null if unknown
-- grid_x: blocks in x
-- grid_y: blocks in y
-- grid_z: blocks in z
-- block_x: threads of a block in x
-- block_y: threads of a block in y
-- block_z: threads of a block in z
-- registers: registers of a thread
-- shared_memory: shared memory of a block; bytes
-- graph_node: node of its CUDA graph
-- occupancy: estimated achieved occupancy, by the profiler; percent
-- blocks_per_sm: blocks of the grid per multiprocessor, by the profiler
-- id: number of the row in its table
-- source: file of the event
-- text: name as the source has it
-- short_name: name as reports show it
-- category: category of a kernel by its name; null if unknown
-- precision: precision of a kernel by its name; null if unknown
-- rank: rank of the process
-- window: number of the profile window of the process in which it starts, from 0; windows that overlap or touch count as one
CREATE VIEW device_work AS
SELECT r.*, n.text, coalesce(n.short, n.text) AS short_name, n.category, n.precision, p.rank,
    greatest(coalesce(len(list_filter(w.starts, lambda start: start <= r.start_ns)), 0) - 1, 0) AS "window"
FROM device_run AS r
LEFT JOIN name AS n ON n.id = r.name
LEFT JOIN process AS p ON p.id = r.process
LEFT JOIN (
    SELECT process, list(first_ns) AS starts FROM (
        SELECT process, first_ns, max(last_ns) OVER (
            PARTITION BY process ORDER BY first_ns, last_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
        FROM profile_window
    ) WHERE before_ns IS NULL OR first_ns > before_ns + 1 GROUP BY process
) AS w ON w.process = r.process;

-- launch: first launch call of a process and a correlation, and its device work
-- process: process that made the call
-- correlation: correlation of the calls and the device work in the process
-- calls: number of launch calls with this correlation
-- tid: thread of the first call
-- name: id of the name of the first call
-- start_ns: start of the first call; ns
-- end_ns: end of the first call; ns
-- runs: number of kernels, copies and memsets with this correlation
-- run_node: node of the first of these events
-- run_device: device of the first of these events
-- run_stream: stream of the first of these events
-- run_name: id of the name of the first of these events
-- run_start_ns: start of the first of these events; ns; null if there are none
-- latency_ns: time from the end of the first call to the start of the first work; ns; negative if the work began during the call
CREATE VIEW launch AS
SELECT c.process, c.correlation, c.calls, first_call['tid'] AS tid, first_call['name'] AS name, first_call['start'] AS start_ns,
    first_call['end'] AS end_ns, coalesce(r.runs, 0) AS runs, first_run['node'] AS run_node, first_run['device'] AS run_device,
    first_run['stream'] AS run_stream, first_run['name'] AS run_name, first_run['start'] AS run_start_ns,
    first_run['start'] - first_call['end'] AS latency_ns
FROM (
    -- The smallest struct is the first one by start, then by end and so on: ties have a fixed result.
    SELECT process, correlation, count(*) AS calls,
        min({'start': start_ns, 'end': start_ns + duration_ns, 'name': name, 'tid': tid}) AS first_call
    FROM host_event WHERE kind = 'launch' AND correlation IS NOT NULL GROUP BY process, correlation
) AS c
LEFT JOIN (
    SELECT process, correlation, count(*) AS runs,
        min({'start': start_ns, 'node': node, 'device': device, 'stream': stream, 'name': name}) AS first_run
    FROM device_event WHERE kind <> 'sync' AND correlation IS NOT NULL GROUP BY process, correlation
) AS r ON r.process = c.process AND r.correlation = c.correlation;

-- step_device: device work of a step. The first launch call with the correlation of the work began within the step on the host
-- process: process of the step
-- phase: phase of the step; null if it has none
-- index: number of the step
-- step_start_ns: start of the step on the host; ns
-- node: node of the device
-- device: number of the GPU on its node
-- stream: stream
-- kind: kernel, memcpy or memset
-- communication: true for a kernel of a collective or of a transfer between ranks
-- computation: true for a kernel that is not communication
-- memory: true for a copy or memset
-- name: id of the name
-- start_ns: start of the work; ns
-- duration_ns: duration of the work; ns
-- end_ns: end of the work; ns
-- correlation: correlation of the call in the process
CREATE VIEW step_device AS
SELECT s.process, s.phase, s."index", s.host_start_ns AS step_start_ns, d.node, d.device, d.stream, d.kind, d.communication, d.computation,
    d.memory, d.name, d.start_ns, d.duration_ns, d.end_ns, d.correlation
FROM (
    -- Steps of phases and other steps overlap; those of either kind do not.
    FROM (
        SELECT process, correlation, min(start_ns) AS called_ns FROM host_event
        WHERE kind IN ('launch', 'sync', 'call') AND correlation IS NOT NULL GROUP BY process, correlation
    ), (VALUES (false), (true)) AS kind(phased)
) AS c
ASOF JOIN (SELECT *, phase IS NOT NULL AS phased FROM step) AS s
    ON s.process = c.process AND s.phased = c.phased AND s.host_start_ns <= c.called_ns
JOIN device_run AS d ON d.process = c.process AND d.correlation = c.correlation
WHERE c.called_ns < s.host_start_ns + s.host_duration_ns;
