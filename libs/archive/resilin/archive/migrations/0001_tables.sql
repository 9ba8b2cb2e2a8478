-- The archive of cells: one row a job, an allocation, a throughput, a server.
-- Every row is a function of the log up to its cell's row in positions.

-- How far each cell's log has come into the tables. Offsets and leases are what makes a
-- repeat of entries, a second writer or a crash in between change nothing.
CREATE TABLE positions (
    cell text PRIMARY KEY,
    log_offset bigint NOT NULL,
    logged_at timestamptz,
    leases jsonb NOT NULL
);

CREATE TABLE jobs (
    cell text NOT NULL,
    job_id text NOT NULL,
    -- A job's id may be used again once admission has forgotten it; its submission is unique.
    submitted_offset bigint NOT NULL,
    name text NOT NULL,
    tenant text NOT NULL,
    virtual_cluster text NOT NULL,
    model text NOT NULL,
    global_batch bigint NOT NULL,
    total_iterations double precision NOT NULL,
    deadline_policy text NOT NULL,
    submitted_at timestamptz NOT NULL,
    deadline_at timestamptz,
    outcome text NOT NULL,
    reason text,
    message text,
    promised boolean NOT NULL,
    finish_promised_at timestamptz,
    minimum_satisfactory_share integer,
    admitted_at timestamptz,
    admitted_offset bigint,
    rejected_at timestamptz,
    rejected_offset bigint,
    started_at timestamptz,
    started_offset bigint,
    finished_at timestamptz,
    finished_offset bigint,
    generation bigint NOT NULL,
    switched_generation bigint NOT NULL,
    lost_generation bigint NOT NULL,
    resizes integer NOT NULL,
    migrations integer NOT NULL,
    failures bigint NOT NULL,
    gpu_seconds double precision NOT NULL,
    stop_seconds double precision NOT NULL,
    PRIMARY KEY (cell, job_id, submitted_offset)
);
CREATE INDEX jobs_open ON jobs (cell) WHERE finished_at IS NULL;
CREATE INDEX jobs_by_submission ON jobs (cell, submitted_at);
CREATE INDEX jobs_by_tenant ON jobs (cell, tenant, finished_at);

CREATE TABLE allocations (
    cell text NOT NULL,
    job_id text NOT NULL,
    submitted_offset bigint NOT NULL,
    generation bigint NOT NULL,
    workers integer NOT NULL,
    gpus jsonb NOT NULL,
    from_at timestamptz NOT NULL,
    from_offset bigint NOT NULL,
    switched_at timestamptz,
    stop_seconds double precision,
    to_at timestamptz,
    to_offset bigint,
    PRIMARY KEY (cell, job_id, submitted_offset, generation),
    FOREIGN KEY (cell, job_id, submitted_offset) REFERENCES jobs
);
CREATE INDEX allocations_open ON allocations (cell) WHERE to_at IS NULL;
CREATE INDEX allocations_by_time ON allocations (cell, from_at, to_at);

CREATE TABLE throughput (
    cell text NOT NULL,
    log_offset bigint NOT NULL,
    event_index integer NOT NULL,
    model text NOT NULL,
    global_batch bigint NOT NULL,
    workers bigint NOT NULL,
    iterations_per_second double precision NOT NULL,
    source text NOT NULL,
    known_at timestamptz NOT NULL,
    job_id text,
    generation bigint,
    PRIMARY KEY (cell, log_offset, event_index, model, global_batch, workers)
);
CREATE INDEX throughput_by_model ON throughput (cell, model, global_batch, workers, log_offset);

CREATE TABLE servers (
    cell text NOT NULL,
    server_id text NOT NULL,
    gpus integer NOT NULL,
    rack text NOT NULL,
    virtual_cluster text NOT NULL,
    incarnation bigint NOT NULL,
    joined boolean NOT NULL,
    removed boolean NOT NULL,
    PRIMARY KEY (cell, server_id)
);
