-- Tables of a run store. One file or in-memory database of DuckDB is one run.
--
-- Times are integer nanoseconds since the Unix epoch, or since an anchor of 0 if a source has no epoch (see ingest_note). Durations are
-- nanoseconds. A comment after a column gives its meaning and unit.
--
-- Events are in the schema `raw` as in their source, each with its source. Their process, node and time, and ids that continue from file to
-- file, follow from source_map and the alias tables. The views in views.sql apply these and leave out the rows of left_out. No event row
-- changes after it was written.
--
-- Versions of the format (store_info, key format_version):
--   9  compilation; signature; signature, sequence and forward_thread of host events; occupancy and multiprocessors of device events
--   8  group_description, peer and sequence of collectives
--   7  events in the schema raw with id and source_id; source_map, left_out, aliases; views; comments
--   6  collective, allocation, recorded_window; windows of Python profiles
--   5  and earlier: before the first release

CREATE TYPE DEVICE_KIND AS ENUM ('kernel', 'memcpy', 'memset', 'sync');
CREATE TYPE HOST_KIND AS ENUM ('launch', 'sync', 'call', 'operator', 'python', 'loader', 'overhead');

-- The run: one row. JSON columns contain JSON text.
CREATE TABLE run (
    name VARCHAR, -- name of the job or of its folder
    status VARCHAR, -- completed, failed, stopped, partial or unknown
    started_ns BIGINT, -- start of the job, or else of its first event; ns
    ended_ns BIGINT, -- end of the job, or else of its last event; ns
    framework VARCHAR, -- training framework, with its version if known
    instance_type VARCHAR, -- type of the cloud machines
    resources VARCHAR, -- JSON object: hosts and GPUs of the job
    hyperparameters VARCHAR, -- JSON object: hyperparameters of the job
    labels VARCHAR, -- JSON object: labels of the job
    metadata VARCHAR, -- JSON object: other facts from the sources
    job_started_ns BIGINT, -- start of the command that postrun record started; ns
    job_ended_ns BIGINT -- end of that command; ns
);

-- A file of the run, also if postrun does not read it.
CREATE TABLE source (
    id INTEGER, -- number of the file
    path VARCHAR, -- path or URL
    format VARCHAR, -- name of the format; unknown if it has no reader
    bytes BIGINT, -- size of the file; bytes
    sha256 VARCHAR, -- checksum of the file, hexadecimal
    events BIGINT, -- rows that its reader added
    first_ns BIGINT, -- first start of its events; ns
    last_ns BIGINT, -- last end of its events; ns
    clock_offset_ns BIGINT, -- added to the times of the file, so that they are on the clock of the other files; ns
    clock_evidence VARCHAR -- reason for this offset
);

-- A node of the run.
CREATE TABLE node (
    id INTEGER, -- number of the node
    hostname VARCHAR, -- host name, or "unknown host"
    cores INTEGER, -- processor cores
    memory_bytes BIGINT, -- host memory; bytes
    gpus INTEGER, -- number of GPUs
    quota DOUBLE -- limit of processor time; cores
);

-- A process of the run.
CREATE TABLE process (
    id INTEGER, -- number of the process in the run
    node INTEGER, -- id in table node
    pid BIGINT, -- process id of the operating system
    rank INTEGER, -- rank in the job
    local_rank INTEGER, -- rank on its node
    world_size INTEGER, -- number of ranks of the job
    command VARCHAR, -- command line
    label VARCHAR, -- name of the process in the source, such as a field of a file name or a worker
    source INTEGER -- id in table source; the first file that names the process
);

-- Time that a profiler recorded: one row per trace file of a process, or per GPU window of a recording of the capture library. A profiler
-- with a schedule writes a file per cycle and records nothing between them.
CREATE TABLE profile_window (
    process INTEGER, -- id in table process
    source INTEGER, -- id in table source
    first_ns BIGINT, -- first start of the events; ns
    last_ns BIGINT, -- last end of the events; ns
    on_ns BIGINT, -- time when the profiler was switched on, if the file records it; ns
    off_ns BIGINT -- time when it was switched off; ns. Without an event between on and off, nothing happened
);

-- A session of a process that the capture library recorded.
CREATE TABLE recorded_window (
    process INTEGER, -- id in table process
    first_ns BIGINT, -- start of the session; ns
    last_ns BIGINT, -- stop of the session; ns
    process_started_ns BIGINT, -- start of the process; ns
    stopped BOOLEAN -- true for the last session of a process that continued, or may have continued, without being recorded
);

-- A GPU of a node.
CREATE TABLE device (
    node INTEGER, -- id in table node
    "index" INTEGER, -- number of the GPU on its node, as in the trace
    uuid VARCHAR, -- UUID of the GPU
    name VARCHAR, -- model
    memory_bytes BIGINT, -- device memory; bytes
    sm_count INTEGER, -- multiprocessors
    compute_capability VARCHAR, -- version of the architecture, such as 9.0
    vendor VARCHAR -- NVIDIA or AMD
);

-- A distinct name of kernels, calls, operators or ranges. Only kernels have short, precision and category.
CREATE TABLE name (
    id INTEGER, -- number of the text
    text VARCHAR, -- the name
    short VARCHAR, -- short name of a kernel, unique in the run
    precision VARCHAR, -- precision in which a kernel computes, by its name
    category VARCHAR -- kind of work of a kernel, by its name; communication is one of them
);

-- Process, node and clock of the events of a source: one row per source and process, or per source and node for samples. To join processes,
-- nodes and clocks of events, postrun changes only this table.
CREATE TABLE source_map (
    source_id INTEGER, -- number that event rows refer to
    source INTEGER, -- id in table source
    process INTEGER, -- id in table process; null for events of a node
    node INTEGER, -- id in table node
    shift_ns BIGINT, -- added to times: base time of the trace plus clock offset; ns
    id_offset BIGINT, -- added to positive correlations and external ids, so that they are unique in the process
    device INTEGER -- GPU of events that do not name a GPU
);

-- Events that do not count, each with a reason. Deleting the rows of a reason brings the events back.
CREATE TABLE left_out (
    table_name VARCHAR, -- table in the schema raw
    id BIGINT, -- id of the row in that table
    reason VARCHAR -- such as "recorded twice" or "beyond a limit"
);

-- Threads of a process that have another id in another source of the process.
CREATE TABLE thread_alias (
    source_id INTEGER, -- id in table source_map
    tid BIGINT, -- thread id in the raw rows
    alias BIGINT -- thread id in the views
);

-- Devices of a process that numbers only its visible devices, differently from the node.
CREATE TABLE device_alias (
    source_id INTEGER, -- id in table source_map
    device INTEGER, -- number of the GPU in the raw rows
    alias INTEGER -- number of the GPU on its node, in the views
);

-- Names of device events that appear under another name: symbols that demangle to the same name, and kernels beyond a limit.
CREATE TABLE name_alias (
    name INTEGER, -- id in table name, in the raw rows
    alias INTEGER -- id in table name, in the views
);

-- A text of events other than their name: arguments of ranges, names of process groups and of counters. Masking and redaction change rows of
-- this table, not of the tables of events.
CREATE TABLE text (
    id INTEGER, -- number of the text
    text VARCHAR -- the text; several rows may have the same
);

-- A distinct combination of the inputs of an operator and the code that called it, which many calls share. JSON columns contain the JSON text
-- of the source.
CREATE TABLE signature (
    id INTEGER, -- number of the combination
    input_dims VARCHAR, -- JSON array: sizes of each input; [] for an input without sizes, such as a number
    input_types VARCHAR, -- JSON array: type of each input
    input_strides VARCHAR, -- JSON array: strides of each input; elements
    concrete_inputs VARCHAR, -- JSON array: values of the inputs other than tensors, as texts
    call_stack VARCHAR, -- Python frames of the call, separated by semicolons
    module_hierarchy VARCHAR, -- modules of the call
    kernel_file VARCHAR, -- source file of a compiled kernel
    kernel_flop DOUBLE -- floating-point operations, by the compiler's estimate
);

-- A kernel execution, copy, memset or synchronization record of a GPU.
CREATE TABLE raw.device_event (
    id BIGINT, -- number of the row, in the order of the source
    source_id INTEGER, -- id in table source_map
    device INTEGER, -- number of the GPU on its node; null: source_map.device
    context BIGINT, -- context of the driver
    stream BIGINT, -- stream of the context
    kind DEVICE_KIND, -- kernel, memcpy, memset or sync
    name INTEGER, -- id in table name
    start_ns BIGINT, -- start; ns
    duration_ns BIGINT, -- duration; ns
    correlation BIGINT, -- links to the launch of the same process; null or 0 if the source has none
    external_id BIGINT, -- links to the operator of the same process
    bytes BIGINT, -- size of a copy or memset; bytes
    copy_kind VARCHAR, -- direction of a copy, such as HtoD
    pageable BOOLEAN, -- whether the host memory of a copy was pageable; null if unknown
    grid_x BIGINT, -- blocks in x
    grid_y BIGINT, -- blocks in y
    grid_z BIGINT, -- blocks in z
    block_x BIGINT, -- threads of a block in x
    block_y BIGINT, -- threads of a block in y
    block_z BIGINT, -- threads of a block in z
    registers BIGINT, -- registers of a thread
    shared_memory BIGINT, -- shared memory of a block; bytes
    graph_node BIGINT, -- node of a CUDA graph
    occupancy DOUBLE, -- estimated achieved occupancy, by the profiler; percent; null if the profiler could not compute it
    multiprocessors INTEGER -- multiprocessors that share the blocks of the grid, by the profiler
);

-- A record of a collective with its size. With on_device, correlation and start_ns are those of its kernel; otherwise tid, start and duration
-- are those of the framework's call.
CREATE TABLE raw.collective (
    id BIGINT, -- number of the row, in the order of the source
    source_id INTEGER, -- id in table source_map
    on_device BOOLEAN, -- true for a record of the kernel, false for a record of the call
    tid BIGINT, -- thread of the call
    start_ns BIGINT, -- start; ns
    duration_ns BIGINT, -- duration; ns
    correlation BIGINT, -- correlation of the kernel
    external_id BIGINT, -- links to the operator of the same process
    operation VARCHAR, -- name of the collective, such as allreduce
    element_type VARCHAR, -- type of an element
    in_elements BIGINT, -- elements of all input tensors of this rank
    out_elements BIGINT, -- elements of all output tensors of this rank
    group_name INTEGER, -- id in table text; name of the process group
    group_ranks VARCHAR, -- ranks of the group, as JSON text
    group_size BIGINT, -- ranks in the group
    group_description VARCHAR, -- purpose of the group, such as PIPELINE_MODEL_PARALLEL_GROUP or mesh_dp
    peer BIGINT, -- rank that a send goes to, or that a receive comes from
    sequence BIGINT -- number of the collective in the group, counted by the framework
);

-- An allocation or release of the framework's allocator on a device.
CREATE TABLE raw.allocation (
    id BIGINT, -- number of the row, in the order of the source
    source_id INTEGER, -- id in table source_map
    device INTEGER, -- number of the GPU on its node
    start_ns BIGINT, -- time; ns
    bytes BIGINT, -- allocated bytes; negative for a release
    allocated BIGINT, -- allocated after it; bytes
    reserved BIGINT -- reserved after it; bytes
);

-- A host call or function. Kinds: launch (kernel, copy, memset, graph launch), sync (blocking synchronization), call (any other runtime or
-- driver call), operator, python, loader (data-loader wait), overhead (the profiler itself).
CREATE TABLE raw.host_event (
    id BIGINT, -- number of the row, in the order of the source
    source_id INTEGER, -- id in table source_map
    tid BIGINT, -- thread
    kind HOST_KIND, -- launch, sync, call, operator, python, loader or overhead
    name INTEGER, -- id in table name
    start_ns BIGINT, -- start; ns
    duration_ns BIGINT, -- duration; ns
    correlation BIGINT, -- links to the device events of the same process; null or 0 if there are none
    external_id BIGINT, -- links to the operator of the same process
    signature INTEGER, -- id in table signature; only for operators
    sequence BIGINT, -- number that an operator shares with the autograd node that differentiates it
    forward_thread BIGINT -- number of the thread that ran the forward operator, as counted by the framework; only for autograd nodes
);

-- A begin/end range, on the host or projected onto a stream.
CREATE TABLE raw.annotation (
    id BIGINT, -- number of the row, in the order of the source
    source_id INTEGER, -- id in table source_map
    tid BIGINT, -- thread
    side VARCHAR, -- host, or device if the profiler projected the range onto a stream
    device INTEGER, -- number of the GPU on its node; only for device ranges
    stream BIGINT, -- stream; only for device ranges
    name INTEGER, -- id in table name
    value BIGINT, -- number in the name or of the step (ProfilerStep#12: 12)
    start_ns BIGINT, -- start; ns
    duration_ns BIGINT, -- duration; ns
    depth INTEGER, -- number of ranges around it on its thread
    phase VARCHAR, -- mode, if the source has one (Step:ModeKeys.TRAIN)
    complete BOOLEAN, -- true if its end was recorded
    arguments INTEGER -- id in table text; JSON object with facts that a rule needs (num_workers, pin_memory of a data loader), mostly null
);

-- A training step, derived from ranges and device work.
CREATE TABLE step (
    node INTEGER, -- id in table node
    process INTEGER, -- id in table process
    phase VARCHAR, -- mode of the step: train, eval, ...
    "index" BIGINT, -- number of the step
    host_start_ns BIGINT, -- start on the host; ns
    host_duration_ns BIGINT, -- duration on the host; ns
    device_start_ns BIGINT, -- first start of the device work that was launched in it; ns; null if there is none
    device_duration_ns BIGINT, -- time from there to the last end of that work; ns
    device_events BIGINT -- number of device events that were launched in it
);

-- A value of a metric. The metric is one of METRICS in metrics.py, or "counter." and the name of a counter of the program, which is in text.
CREATE TABLE raw.sample (
    id BIGINT, -- number of the row, in the order of the source
    source_id INTEGER, -- id in table source_map
    metric VARCHAR, -- name of the metric; null for a counter of the program
    counter INTEGER, -- id in table text; counter of the program
    unit INTEGER, -- number of the core or GPU; null for the complete node. For a counter, the process that recorded it
    time_ns BIGINT, -- time of the measurement; ns
    value DOUBLE -- value, in the unit of the metric
);

-- A file of a Python profile, with its start and end according to the name of its folder.
-- Modes: train, eval, predict, global, prestepzero, posthookclose. Phases: start, stepstart, forwardpassend, stepend, end.
CREATE TABLE python_window (
    id INTEGER, -- number of the window
    source INTEGER, -- id in table source
    node INTEGER, -- id in table node
    process INTEGER, -- id in table process
    profiler VARCHAR, -- cprofile or pyinstrument
    timer VARCHAR, -- total_time, cpu_time or off_cpu_time; null if unknown
    start_mode VARCHAR, -- mode at its start
    start_step BIGINT, -- step at its start
    start_phase VARCHAR, -- phase at its start
    end_mode VARCHAR, -- mode at its end
    end_step BIGINT, -- step at its end
    end_phase VARCHAR, -- phase at its end
    start_ns BIGINT, -- start; ns
    duration_ns BIGINT, -- duration; ns
    functions BIGINT, -- number of functions
    calls BIGINT, -- number of calls; null if the profiler samples
    total_s DOUBLE -- own time of all functions; s
);

-- A function of a Python profile.
CREATE TABLE python_profile (
    node INTEGER, -- id in table node
    process INTEGER, -- id in table process
    "window" INTEGER, -- id in table python_window
    id INTEGER, -- number of the function in its window
    first_step BIGINT, -- first step of the window
    last_step BIGINT, -- last step of the window
    timer VARCHAR, -- as in python_window
    function VARCHAR, -- name, as pstats prints it
    file VARCHAR, -- source file; null for built-in functions
    line BIGINT, -- first line; null for built-in functions
    calls BIGINT, -- number of calls
    primitive_calls BIGINT, -- number of calls that are not recursive
    total_s DOUBLE, -- own time; s
    cumulative_s DOUBLE -- time with the functions it calls; s. Of recursive calls, only the outermost counts
);

-- A caller and a callee of a cProfile window. The figures are those of the callee in these calls.
CREATE TABLE python_call (
    "window" INTEGER, -- id in table python_window
    caller INTEGER, -- id in table python_profile, within the window
    callee INTEGER, -- id in table python_profile, within the window
    calls BIGINT, -- number of calls
    primitive_calls BIGINT, -- number of calls that are not recursive
    total_s DOUBLE, -- own time; s
    cumulative_s DOUBLE -- time with the functions it calls; s
);

-- A frame of the call tree of a Pyinstrument window.
CREATE TABLE python_frame (
    "window" INTEGER, -- id in table python_window
    id INTEGER, -- number of the frame in the window
    parent INTEGER, -- id of the calling frame; null for a root
    function INTEGER, -- id in table python_profile, within the window
    total_s DOUBLE, -- own time; s
    cumulative_s DOUBLE -- time with the functions it calls; s
);

-- A compilation of a function by torch.compile, from the structured log of its process. Times are null if it did not end or the log has none.
CREATE TABLE compilation (
    node INTEGER, -- id in table node
    process INTEGER, -- id in table process
    source INTEGER, -- id in table source
    frame VARCHAR, -- number of the function in the process, as torch.compile counts; !1/0 for a graph of compiled autograd
    version BIGINT, -- number of the compilation of the function, from 0; recompilations start at 1
    backward BOOLEAN, -- true for the compilation of the backward pass, which follows later
    function VARCHAR, -- name of the function
    file VARCHAR, -- its source file
    line BIGINT, -- its first line
    start_ns BIGINT, -- start; ns
    duration_ns BIGINT, -- duration; ns
    reason VARCHAR, -- for a recompilation, the guard of the latest compilation that failed
    graph_breaks BIGINT, -- breaks of the graph within the function
    graph_break VARCHAR, -- place and reason of the first break
    failure VARCHAR, -- reason why it failed
    limit_reached BOOLEAN, -- true if it failed because the function had too many compilations; calls that fit none of them run without compilation
    finished BOOLEAN -- true if the log contains its end
);

-- A repair, loss or guess of a reader, by kind and file.
CREATE TABLE ingest_note (
    source INTEGER, -- id in table source; null if the note concerns several files
    file VARCHAR, -- name of the file
    severity VARCHAR, -- info, warning or error
    code VARCHAR, -- kind of the note
    message VARCHAR, -- sentence for the report
    "count" BIGINT, -- number of events that the note concerns
    first_ns BIGINT, -- first start of these events; ns
    last_ns BIGINT -- last start of these events; ns
);

-- Facts about the file itself.
CREATE TABLE store_info (
    key VARCHAR, -- format, format_version
    value VARCHAR -- postrun; version number of the format
);
